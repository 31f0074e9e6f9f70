"""Metadata as Kafka's brokers keep it in ZooKeeper: a tree of small JSON documents."""
