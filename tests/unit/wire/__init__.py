"""The wire codec: its tables, its bytes, and what it refuses."""
