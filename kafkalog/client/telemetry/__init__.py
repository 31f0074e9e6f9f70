"""A client's metrics, sent to brokers that subscribe to them (KIP-714)."""
