"""Thin adapters to what else one could use, each skipped where its package is missing."""
