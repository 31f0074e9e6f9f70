"""A broker of a KRaft cluster, whose controllers are other processes."""
