"""Calls of an administrator, one file per subject."""
