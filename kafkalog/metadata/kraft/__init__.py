"""The metadata of a single node: KRaft's log, its snapshots, loading them."""
