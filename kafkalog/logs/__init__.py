"""The log of a node: its events, their form and number, and the lowest level written.

The library never configures Python's root logger: its loggers begin with `kafkalog`, and a program
that embeds a Log, a Store or a Broker decides what becomes of them.
"""
