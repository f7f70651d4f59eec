"""From a policy to flying drones, without JAX: only Crazyflow and the check of exported files need it."""
