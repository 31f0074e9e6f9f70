"""One partition's log: segments, reading, retention, compaction."""
