"""Record batches: codecs, columns into batches, records out of them."""
