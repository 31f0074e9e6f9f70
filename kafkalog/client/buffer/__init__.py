"""Records that wait to be sent, in batches."""
