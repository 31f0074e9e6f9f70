"""Connections of a broker: its listeners, its reactor, and the way in from this process."""
