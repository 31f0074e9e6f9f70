"""The background jobs of a data directory: retention, compaction, flushes, checkpoints, removal."""
