"""Kafka's wire protocol and the formats of its internal records, made from one table."""
