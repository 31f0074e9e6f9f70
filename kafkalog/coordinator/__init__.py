"""The group coordinator: Kafka's classic groups as state machines over a journal.

Everything but `coordinator` is free of threads, clocks and chance: it is given the time and
returns what to answer and to write.
"""
