"""Shared by the benchmarks of Spark: sessions, topics, and the most that a source can reach."""
