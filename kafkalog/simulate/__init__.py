"""A whole cluster in one thread and in a time of its own, to be broken in every way by seed."""
