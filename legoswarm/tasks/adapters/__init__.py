"""Doors between tasks and environments of other packages."""
