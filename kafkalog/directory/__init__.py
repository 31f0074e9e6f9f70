"""One node's partitions: the manager, their folders, checkpoints and jobs."""
