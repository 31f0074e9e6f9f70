"""The table of Kafka's APIs and internal records, in the notation of wire.notation."""
