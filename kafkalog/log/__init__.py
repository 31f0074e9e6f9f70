"""One partition: the log, its segments, scans, retention, compaction."""
