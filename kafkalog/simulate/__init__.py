"""A whole cluster in one thread and in virtual time, with faults drawn from a seed."""
