"""One node's disks: logs, data directories, codecs, retention."""
