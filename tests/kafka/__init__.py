"""Apache Kafka and its clients as referees."""
