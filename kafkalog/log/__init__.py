"""One partition's log: segments, reading, retention, compaction.

`log` is the public class; each other module holds one group of its operations, over the `Handle`
that all share.
"""
