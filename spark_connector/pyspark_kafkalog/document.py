"""docs/spark.md, made from the options and columns that the code has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .columns import spark_types
from .option_table import CLIENT, IGNORED, NO_MEANING, OURS, REFUSED, Option
from .ported import PORTED, PORTED_SINK
from .programs import PROGRAMS
from .sink import options as sink
from .sink import settings

_HEAD = """# Spark

Rendered from `spark_connector/pyspark_kafkalog`: `make docs`.
`tests/spark/test_document_session.py` runs the programs of this chapter.

`pip install '.[spark]'` in the checkout installs kafkalog with Spark, which needs Java 17. The
programs run in the activated environment and read a topic of a data directory, for example:

```sh
printf '{"carrier": "AA", "delay": 12}\\n{"carrier": "UA", "delay": 40}\\n' > flights.json
kafkalog ingest flights.json --dir data --topic flights --key carrier
```
"""

_SETUP = """
## Setting up

With `.option("kafka.bootstrap.servers", "broker:9092")` instead of a path, all of this reads and
writes brokers, of kafkalog or Apache Kafka, without Spark's own source and its jars.

PySpark 4.0 or later finds the source by the name of its package, `pyspark_kafkalog`. If it does
not (another `pyspark_*` package on the path that cannot be imported hides them all), call
`pyspark_kafkalog.register(spark)`. Every executor must see the directory at the same path, or reach
the brokers, and have the driver's version of kafkalog installed. A read is a snapshot of the moment
when it was planned: call `load()` again to see more. You can read while a writer writes.

Spark's workers run the `python3` of `PATH`. In a virtual environment that is not activated, that
is another one, without kafkalog: set `PYSPARK_PYTHON` to the environment's `bin/python` before the
session begins, as in `os.environ["PYSPARK_PYTHON"] = sys.executable`.
"""

_COLUMNS = """
## Columns

The columns are those of Spark's Kafka source, so a query written for it runs unchanged. Spark
treats all of them as nullable. To prune columns, you can also give a schema with some of them, in
any order: `spark.read.schema("offset long, value binary")`. Fewer columns are faster; `headers`
costs most.
"""

_OPTIONS = """
## Options

Names and meanings are those of Spark's Kafka source; `of` says whether an option is for batch
reads, streams, or both. An unknown name is refused, and the error suggests the nearest known one.
A batch ignores the options of streams, with a warning; a stream refuses those that end a batch.
"""

_CLIENT = """
`kafka.*` are settings of Kafka's consumer. A read of a path ignores all of them, with a warning. A
read of brokers obeys some, and refuses a name that no consumer has, with the nearest known one.
A plan waits for brokers that are away, as in a restart: by default for 180 s, with a warning.
`kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` are those of Kafka's clients. Spark may
show options in plans, and sends them to tasks as text. So prefer `clientConfigFile`, a properties
file on every machine: no plan, task, event log or web page then has a secret. If options have one,
keep the default of `spark.redaction.regex`, which hides passwords and secrets. For a key as text
(`kafka.ssl.keystore.key`), add `keystore[.]key` to it.
"""

_PORTED = """
### Replacing Spark's Kafka source

Change the name of the format in your query. Each option then means the same, with the exceptions
listed here. Unknown names are refused; Spark's source ignores them.
"""

_STREAM = """
## Streams

```python
flights = (
    spark.readStream.format("kafkalog")
    .option("subscribe", "flights")
    .option("maxOffsetsPerTrigger", 1_000_000)
    .load("data")
)
```

A query continues from its checkpoint: no record is lost or read twice, whichever process dies. With
the sink of this package, which drops repeated batches, this holds from topic to topic. AvailableNow
reads what is there when the query starts, in batches within the limits, and ends. Streams need
Spark 4.0; AvailableNow in more than one batch, and lag, need 4.2. On 4.0 and 4.1 AvailableNow and
Once end after one batch within the limits, with a warning: leave out `maxOffsetsPerTrigger` and
`maxBytesPerTrigger` there, or restart the query until nothing is left.

With a schema of your own (`readStream.schema(...)`, `read.schema(...)`) Spark does not ask the
source at `load()`: a topic that is missing is an error when the read begins.

Checkpoints have the Kafka source's offsets, `{"flights":{"0":23}}`, and also `@ids`, the ids of the
topics, and in batch 0 `@start`, the starting offsets, which Spark does not keep. So with
`failOnDataLoss` a query stops if unread records are gone (retention, a deleted topic, a truncated
log), and also if its topic was recreated, even while the query did not run. With `false` it warns,
reads what is left, and reads a new topic from its start. A plain folder has no topic
id: a query notices that the folder, or the log in it, was replaced only while it runs. A batch read
fails in the same cases if its tasks find another log than the planned one.

A batch that runs again after a crash has the offsets that the checkpoint has, and so has batch 0:
options that say where to start count only for a query without a checkpoint, whatever has happened
to the topics since. With `failOnDataLoss` `false` a query also continues without a topic that was
deleted while it did not run; `load()` then only warns that the topic is missing.

Each trigger looks at the logs, except for a pause of up to a second after a look that took much
processor time, as at thousands of partitions. Waits for brokers that are away lengthen no pause,
and steps of the machine's clock change nothing. New partitions are found within two seconds and
read from their first record.

To move a query from Spark's own source, change the name of the format: it continues from its
checkpoint. The way back needs a new checkpoint, since Spark's own source refuses `@ids` and
`@start`. As `startingOffsets`, give it the last line of the newest file in `offsets` of the old
checkpoint, without these two names, once `commits` has a file with the same number. The state of
aggregations is lost.

A query with `latest`, or without a start, begins at the ends of the logs when it first starts. Its
batch 0 is empty: it records these ends.

`examples/pipeline` is a whole program: it moves flights from topic to topic by event-time windows,
is killed in the middle, and gives the same result as an undisturbed run.

To see how far a query is behind:

```python
from pyspark_kafkalog import lag

lag(query.lastProgress).total
lag(query.lastProgress).each[("flights", 0)]
```

`retentionHold` protects segments that the query has not read from retention by time and by size.
The file `.kafkalog_hold.<name>`, next to the partitions' folders, has the offsets, which move with
each batch. A hold has limits: `retentionHoldMaxBytes` for each partition, and `retentionHoldMaxAge`
after the query stopped, since Spark does not notify its sources when it stops. `Expiry.held`, from
`Log.apply_retention`, counts the segments that holds keep. A hold works only with a path, not with
brokers, and so does `onlyFlushed`. `kafkalog holds` lists and ends holds. Apache Kafka's own broker
ignores the file.
"""

_WRITE = """
## Writing

```python
rows.write.format("kafkalog").mode("append").option("topic", "flights").save("data")

(
    stream.writeStream.format("kafkalog")
    .option("topic", "late")
    .option("kafka.bootstrap.servers", "broker:9092")
    .option("checkpointLocation", "checkpoints/late")
    .start()
)
```

Columns are those of Spark's Kafka sink: `value` (required), `key`, `topic`, `partition`, `headers`;
and `timestamp`, by default the time of the write. Other columns are left out. A key chooses its
partition as in a Java producer.

Tasks stage their rows in files; the driver writes them in one Kafka transaction, which also commits
the number of the batch as an offset of the group `spark-sink-<sinkId>`. So a reader of committed
records sees a micro-batch whole or not at all, and a batch that Spark runs again after a failure
is found there and dropped. This holds as long as the target remembers the group: seven days without
a batch (`offsets.retention.minutes`). A new checkpoint is a new query, and writes again, unless
`sinkId` says that it is the same: then its batches up to the last number of the old one are
dropped, with a warning, whatever rows they have. A commit without an answer is retried; the error
of a batch write without `batchId` says if it stays unknown whether the rows are there.

Two queries with copies of one checkpoint are one query to the sink, which writes each number once.
The query that comes second with a number fails; the error names both checkpoints, wherever they are
set: by the option or by `spark.sql.streaming.checkpointLocation`. So it does with a checkpoint
restored from a backup. No row is repeated or left out in silence, while Spark's Kafka sink writes
the rows of both. To write them here too, give one of the queries a `sinkId`. If the checkpoint was
moved, the query goes on with a warning. Only if its last batch runs again there does it fail: set
`sinkId` to the query's id, and what the target has by its number is dropped.

A batch without rows opens and creates nothing, and is not remembered.

With a path the driver opens the directory for each batch, which only one process can do at a time:
queries that write to one directory take turns. While a broker has it open, write to the broker.
A delivery waits for a directory that is in use, and for brokers that are away, as in a restart, for
up to `kafka.delivery.timeout.ms` (120 s), with a warning that names the process that has
the directory. Reports need not hold up a sink: `kafkalog.polars.scan(path, topic)`,
`kafkalog.pandas.read(path, topic)`, `Log(folder, mode="r")`, `kafkalog consume --dir` and this
source take no lock; `kafkalog.Store(path)` does.

Deliveries keep such a directory open too briefly for a broker's background work. The sink compacts
the journals of groups and transactions itself. Retention and the compaction of topics wait for a
broker or a store that stays open for half a minute, or for `Log.apply_retention` and
`kafkalog compact`.

In `foreachBatch` give each write the number of the batch, and `sinkId`, as in the program above.
The target remembers each write of a batch by its set of topics, so that a batch that runs again
writes only what is missing. Two writes of a batch to the same topics need different `sinkId`s;
otherwise the second counts as a repetition of the first. It fails if it has another number of rows
and comes from the same run of the query; otherwise it is dropped, with a warning if it may be
another write. Make the writes of one `sinkId` one after another: of two at a time one fails.

A driver that dies during a delivery leaves a transaction open, and readers of committed records see
nothing past the offset where it begins. With a path, the next delivery of any query aborts it: the
driver holds the directory's lock, so every transaction open there belongs to a dead writer, or to a
client of a broker that is stopped, which is then fenced. With brokers, a restarted query aborts its
own leftover, because its transactional id is stable: `sinkId`, or the query's id from its
checkpoint. What another query left, or a batch write without `sinkId`, stays open until the broker
times it out (`kafka.transaction.timeout.ms`). Until then each delivery logs which transaction hides
its rows and the command that ends it, `kafkalog transactions force-terminate`.

Records age by their timestamps. A backfill that writes the time of events as the column
`timestamp` into a topic that keeps seven days (`retention.ms`, a broker's default) loses its
rows as soon as retention runs. The first delivery of such rows to a topic logs a warning: set
`retention.ms` of the topic before, or keep the time of the event in the value.

The mode is `append`. Spark passes only one other mode to a Python source, `overwrite`, which a log
does not have. Write a streaming aggregation in `update` mode in `foreachBatch`. Writing streams
needs Spark 4.1 or later.

A missing topic is created with one partition, or with the brokers' `num.partitions`. Usually one
task reads one partition, so create a large topic before the first write:

```python
with kafkalog.Store("data") as store:
    store.create_topic("late", 12)
# Or at brokers: kafkalog topics create late --partitions 12 --bootstrap-server broker:9092
```
"""

_PORTED_SINK = """
### Replacing Spark's Kafka sink

| of the sink | here | test in `tests/spark` |
|---|---|---|
"""

_TAIL = """
## Good to know

- Choose ranges by options: Spark applies a query's filter to everything that was read. Filters
  are not pushed down, because Spark 4.1 to 4.3 would reuse the plan of one filter for another
  (`tests/spark/test_session.py::test_a_source_that_takes_filters_returns_wrong_rows`).
- `CREATE TEMPORARY VIEW v USING kafkalog OPTIONS (...)` works. A table made by `CREATE TABLE`
  needs its options again when it is read: `SELECT ... FROM t WITH ('path' = '...', ...)`.
- `spark.python.unix.domain.socket.enabled=true` (Spark 4.1 and later) makes tasks start faster.
- `-Darrow.enable_unsafe_memory_access=true` in `spark.driver.extraJavaOptions` and
  `spark.executor.extraJavaOptions` leaves out the bounds checks of Arrow in the JVM, for every user
  of Arrow there.
- Each of Spark's Python processes compiles PySpark again out of `pyspark/python/lib/pyspark.zip`,
  for more than a second of processor time; a session's first query starts six or more. If all of
  them have PySpark installed, set `SPARK_HOME` to a folder without that file: make in it links to
  `bin`, `jars` and `sbin` of the installed `pyspark`.
- Micro-batches of few rows spend half of their time on Spark's checkpoint. On a local disk
  `spark.sql.streaming.checkpointFileManagerClass` can name
  `org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager`
  (Spark 4.1 and later), which is twice as fast.
- `No module named 'pyspark_kafkalog'` in a task: the executors' Python has no kafkalog. Install it
  there, or ship an environment: `--archives env.tar.gz#env`, `PYSPARK_PYTHON=env/bin/python`. If
  their Python has pyarrow and cffi, the folders `kafkalog` and `pyspark_kafkalog` are enough:
  `--archives package.tar.gz#shipped`, `spark.executorEnv.PYTHONPATH=shipped`. `--py-files` cannot
  carry them, since Python does not load a C core out of a zip. For folders at the same path on
  each machine, the driver's `PYTHONPATH` is enough, which Spark passes on.
- In a thread that Python made, a write fails with `DATA_SOURCE_NOT_FOUND`, because Spark looks for
  Python sources in the thread's active session, and there is none: call
  `pyspark_kafkalog.register(spark)` in the thread first.
- All of this also works through Spark Connect; install the packages on the server.
- A worker keeps the logs of its last read open. After a writer was killed, opening a log reads the
  unflushed part of its last segment: once per worker, not once per task.
- There are no statistics for the planner: use `broadcast()` for a small topic in a join.
"""


def render_markdown() -> str:
    """The document."""
    lines = [_HEAD.rstrip(), PROGRAMS.rstrip(), _SETUP, _COLUMNS, *_table("column", "type")]
    lines += (f"| `{name}` | `{kind.simpleString()}` |" for name, kind in spark_types().items())
    lines += [_OPTIONS, *_options(OURS)]
    lines += ["", "Refused, as by the Kafka source:", ""]
    lines += (f"- `{name}`: {instead}" for name, instead in REFUSED.items())
    lines += ["", f"Ignored with a warning: {_names(IGNORED)}.", "", _CLIENT.strip(), ""]
    lines += [f"Obeyed: {_names(CLIENT)}. Ignored with a warning: {_names(NO_MEANING)}."]
    lines += [
        "",
        "A task fetches 4 MiB at once unless `kafka.max.partition.fetch.bytes` is set.",
    ]
    lines += [_PORTED.rstrip(), *_table("option", "here", "test in `tests/spark`")]
    lines += (f"| `{name}` | {one.here} | `{one.test}` |" for name, one in PORTED.items())
    lines += [_STREAM.rstrip(), _WRITE.rstrip()]
    lines += _options(sink.OURS)
    lines += ["", "Every other `kafka.*` is a setting of the producer. Refused:", ""]
    lines += (f"- `{name}`: {instead}{_unless(name)}" for name, instead in settings.REFUSED.items())
    classes = _names(filter(None, settings.PARTITIONERS))
    lines += [f"- `kafka.partitioner.class`, but for {classes}", ""]
    lines += [f"Ignored with a warning, as they change no record: {_names(settings.IGNORED)}."]
    lines.append(_PORTED_SINK.rstrip())
    lines += (f"| {name} | {one.here} | `{one.test}` |" for name, one in PORTED_SINK.items())
    lines.append(_TAIL.rstrip())
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def _unless(name: str) -> str:
    values = settings.NEEDLESS.get(name)
    return f" (`{'` or `'.join(values)}` is taken)" if values else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _options(options: Mapping[str, Option]) -> list[str]:
    rows = (
        f"| `{name}` | {', '.join(o.modes)} | {o.default} | {o.meaning} |"
        for name, o in options.items()
    )
    return [*_table("option", "of", "default", "meaning"), *rows]


def _table(*heads: str) -> list[str]:
    return ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
