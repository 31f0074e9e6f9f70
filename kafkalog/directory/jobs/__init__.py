"""The periodic work of a data directory: retention, compaction, flushes, checkpoints, removal."""
