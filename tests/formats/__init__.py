"""Directories that earlier versions wrote, which this one opens, verifies and extends."""
