"""A copy of a cluster's topics in another cluster, each record once.

spans       where a record of the source is in the target: bounded, for groups' offsets
batches     which part of a fetched answer is copied: no markers, no aborted records
settings    which of a topic's settings are followed
state       a mirror's progress, stored in a topic of the target
groups      the offsets of groups, translated
mirror      the driver: copies records and stores the progress in one transaction
"""
