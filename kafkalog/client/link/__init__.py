"""Connections to brokers, and the cluster as it is seen over them."""
