"""Calls of an administrator, one file a subject."""
