"""A real broker for tests of client code: it starts in milliseconds and fails on command.

broker   its life, its faults, its clock
power    what a power cut leaves of a directory
records  records that tests write and wait for
place    where its data is kept
port     an address that stays the broker's while it is down

`kafkalog.pytest_plugin` makes fixtures of it, `kafkalog test-broker` a process.
"""
