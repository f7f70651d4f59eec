"""From a policy to flying drones; nothing in this package needs JAX, except the simulator Crazyflow."""
