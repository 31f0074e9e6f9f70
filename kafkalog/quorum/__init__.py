"""A controller whose store is a metadata log that brokers follow (KRaft)."""
