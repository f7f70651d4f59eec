"""Learning: rollouts, advantages, the MAPPO update, the training loop and its run folder."""
