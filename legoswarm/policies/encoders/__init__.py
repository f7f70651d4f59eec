"""Encoders of observations: one file for each, registered by name."""
