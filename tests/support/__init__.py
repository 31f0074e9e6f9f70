"""Shared by several test folders: expected answers, batch builders, child programs."""
