"""The promises of kafkalog, by subject; `tests.support` is what they share."""
