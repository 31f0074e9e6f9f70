"""The metadata of a single node: KRaft's log and its snapshots."""
