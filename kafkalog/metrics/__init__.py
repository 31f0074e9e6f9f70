"""Metrics: the one table of all of them, and how they are shown."""
