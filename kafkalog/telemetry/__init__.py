"""Metrics that clients send to brokers (KIP-714): their format, and what a broker decides."""
