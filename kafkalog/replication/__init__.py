"""Replicas of a partition: leader, followers, and what each may report as safe."""
