"""One broker of a cluster: how it carries out what its controller says."""
