"""The consumer: its group, its positions, its commits."""
