"""The console: a cluster in the browser, through Kafka's protocol and nothing else."""
