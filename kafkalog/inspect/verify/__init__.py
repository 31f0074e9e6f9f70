"""Whether files are what was written: batches, and everything derived from them."""
