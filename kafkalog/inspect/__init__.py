"""Inspects files: `verify/`, repair, the raw files, the drawing."""
