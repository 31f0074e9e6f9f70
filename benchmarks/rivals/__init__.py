"""Thin adapters to alternatives, each skipped if its package is missing."""
