"""Classic groups: members, rebalances, offsets."""
