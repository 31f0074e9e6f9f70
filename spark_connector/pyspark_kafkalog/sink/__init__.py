"""Writing: rows are staged where a task runs, and become records in one transaction.

options    text in, a checked `WriteOptions` out
settings   `kafka.*`: the settings for the producer
rows       a query's columns, and the rows of an Arrow batch by topic and partition
staging    staged rows: one log per task, the rows of each target together
memory     which batches the target has
blocking   open transactions of others, which hide a batch from readers of committed records
upkeep     upkeep of a directory that is only open for deliveries
delivery   the driver's part: staged logs into the target, once for each batch of a stream
writers    the classes that Spark calls
"""
