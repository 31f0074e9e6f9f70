"""The streaming reader: `spark.readStream.format("kafkalog")`."""
