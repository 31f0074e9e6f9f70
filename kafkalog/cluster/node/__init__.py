"""One broker of several: what it makes of what its controller says."""
