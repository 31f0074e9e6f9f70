"""Whether files are what was written: batches, and all that is derived from them."""
