"""Coordinators: Kafka's classic groups, and transactions, as state machines over a journal.

Everything but `thread` is free of threads, clocks and chance: it is given the time and
returns what to answer and to write.
"""
