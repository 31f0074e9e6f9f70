"""Reads the metrics of a running node: counters and states that its parts have anyway."""
