"""Checks that files hold what was written: batches, and everything derived from them."""
