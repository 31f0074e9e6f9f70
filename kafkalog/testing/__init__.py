"""A real broker for tests of code that talks to one: it starts in milliseconds, fails on command.

broker   its life, its faults, its clock
power    what a power cut leaves of a directory
records  what tests put into topics and wait for
place    where its data lies
port     an address that stays the broker's while it is down

`kafkalog.pytest_plugin` makes fixtures of it, `kafkalog test-broker` a process.
"""
