"""Networks: what policies are built from, in JAX."""
