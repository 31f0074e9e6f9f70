"""A copy of a cluster's topics in another cluster, each record once.

spans       where a record of the source is in the target: bounded, for groups' offsets
batches     which part of a fetched answer is copied: no markers, no aborted records
settings    which of a topic's settings are followed
wish        what is copied, and what is counted
state       a mirror's progress and owner, as records of a topic of the target
own         reads such topics
origins     recognises topics that are copies themselves
losses      whether either side has lost records that were copied, and where it continues
groups      the offsets of groups, translated
life        the connections of one life, which takes over the state
topics      the topics and their copies
copying     copies records and stores the progress in one transaction
mirror      the driver: one life after another
"""
