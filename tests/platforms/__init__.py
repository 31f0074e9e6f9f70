"""kafkalog on every system, as far as one Linux machine can show it: `make platforms`."""
