"""Physics and rules that tasks share, for NumPy and JAX arrays alike."""
