"""Fuzzing: every C entry that takes bytes from outside."""
