"""Evaluation: episodes, team sizes, head to head."""
