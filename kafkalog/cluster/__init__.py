"""A node of a cluster on ZooKeeper: what it obeys, and how it joins."""
