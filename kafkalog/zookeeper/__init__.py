"""ZooKeeper as the store of a cluster's metadata: a tree of small JSON documents.

`tree`, `entities`, `documents` and `own_settings` are the documents, `loading` makes an image of
them.  `store` writes a controller's records into them, `watches` tells it what changed, and
`driver`, `sender` and `controller_election` carry out what it decides.
"""
