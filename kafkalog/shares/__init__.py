"""Share partitions (KIP-932): what a partition's leader knows of the records of share groups."""
