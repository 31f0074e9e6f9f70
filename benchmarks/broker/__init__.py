"""The broker beside its rivals: programs that load it, and the brokers that are loaded."""
