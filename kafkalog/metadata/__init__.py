"""Leaders, topics and settings: a node's metadata, alone or in a cluster."""
