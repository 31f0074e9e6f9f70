"""Leaders, topics and settings: the metadata of a single node, in KRaft's records."""
