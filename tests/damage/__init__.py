"""Crashes, power cuts, faults, flipped bits, races, and bytes that nobody wrote."""
