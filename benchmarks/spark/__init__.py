"""What the benchmarks of Spark share: sessions, topics, and the most that a source can reach."""
