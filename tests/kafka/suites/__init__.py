"""Other clients' own tests, run against a broker: ours, or Apache Kafka to see what they say there.

`make suites` (or `python -m tests.kafka.suites [--side kafka] [NAME ...]`) fetches each client's
source from its package registry, builds it once, runs its tests against a fresh broker and
compares what failed with what is known to (`excused`).  It takes most of an hour and much of the
machine, so that it is no part of `make test`; what a suite finds becomes a test in
tests/kafka/clients.
"""
