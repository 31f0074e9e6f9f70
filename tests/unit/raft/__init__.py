"""The Raft core: one replica at a time, event by event."""
