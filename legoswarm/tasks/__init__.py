"""Tasks: one file for each; worlds that they share; adapters for environments of other packages.

The modules of `worlds` take NumPy arrays too and import no JAX.
"""
