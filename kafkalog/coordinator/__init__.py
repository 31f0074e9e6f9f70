"""Coordinators: Kafka's classic groups, and transactions, as state machines over a journal.

All but `thread` is free of threads, clocks and randomness: it takes the time as an argument and
returns what to answer and to write.
"""
