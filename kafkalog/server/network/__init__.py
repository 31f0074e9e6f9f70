"""A broker's connections: its listeners, its reactor, and the transport within this process."""
