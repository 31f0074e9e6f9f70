"""Streams groups (KIP-1071): the members of a Kafka Streams application, and their tasks."""
