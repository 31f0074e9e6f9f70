"""Connections to brokers, and the cluster as a client sees it over them."""
