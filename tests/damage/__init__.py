"""Crashes, power cuts, faults, flipped bits, races, and senseless bytes."""
