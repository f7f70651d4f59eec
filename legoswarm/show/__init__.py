"""Pictures and animations of trajectories; `draw` needs no JAX."""
