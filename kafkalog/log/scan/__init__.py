"""Scans: a log or a topic as columns, decoded by the data plane."""
