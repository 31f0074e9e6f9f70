"""Who leads what, and with which settings: the metadata of a single node, in KRaft's records."""
