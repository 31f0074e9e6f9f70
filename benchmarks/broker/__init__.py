"""The broker compared with its rivals: load programs, and the brokers under load."""
