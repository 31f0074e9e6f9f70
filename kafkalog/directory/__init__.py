"""The partitions of one data directory: the manager, their folders, checkpoints and jobs."""
