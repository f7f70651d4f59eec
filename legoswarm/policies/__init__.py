"""Policies: one file for each (LEGO and the baselines), their encoders and networks, and the policy file.

What stands directly in this folder needs no JAX; networks are imported when they are built.
"""
