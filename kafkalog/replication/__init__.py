"""Copies of a partition: who leads, who follows, and what each may say is safe."""
