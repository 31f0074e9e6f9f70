"""The wire codec: its table, its bytes, its refusals."""
