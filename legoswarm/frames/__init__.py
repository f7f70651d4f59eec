"""Canonical frames: geometry only, knows nothing of learning.

`canonical` computes frames in JAX; `rules` names the choices and needs no JAX.
"""
