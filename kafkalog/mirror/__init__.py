"""A copy of a cluster's topics in another cluster, each record once.

spans       where a record of the source lies in the target: bounded, for groups' offsets
batches     what of a fetched answer is copied: no markers, nothing that was aborted
settings    which of a topic's settings are followed
state       how far a mirror is, as it stands in a topic of the target
groups      the offsets of groups, translated
mirror      the driver: records and how far they are in one transaction
"""
