"""Metadata as the brokers of Kafka's ZooKeeper era keep it: a tree of small JSON documents."""
