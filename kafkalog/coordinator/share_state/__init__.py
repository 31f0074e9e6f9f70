"""The share coordinator: keeps the state of share partitions in `__share_group_state`."""
