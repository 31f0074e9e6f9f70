"""The producer: its identity, its transactions, and what is sent."""
