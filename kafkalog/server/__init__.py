"""The broker: Kafka's protocol over the logs of a data directory."""
