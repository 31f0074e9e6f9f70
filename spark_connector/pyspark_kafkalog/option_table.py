"""The options of reads as documented: name, default, meaning, and the modes that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BATCH = "batch"
STREAM = "stream"


class Option(NamedTuple):
    """An option as the documentation has it."""

    default: str
    meaning: str
    modes: tuple[str, ...] = (BATCH, STREAM)
    """`read` and `readStream`; of the sink: `write` and `writeStream`."""


_ONE_OF_THREE = "one of the three"
CLIENT_CONFIG_FILE = (
    "Brokers: a client's properties file, with `security.protocol`, `sasl.jaas.config` and such, "
    "on every machine. Only its path is in plans, tasks and logs; `kafka.*` override it."
)

OURS: Mapping[str, Option] = {
    "path": Option("this or the next", "A data directory of kafkalog or Kafka, a plain folder of "
        "partition folders, or one partition's folder; local or file:///."),
    "kafka.bootstrap.servers": Option("this or the last", "Brokers, of kafkalog or Apache "
                                                          "Kafka: `host:port,...`. Read over "
                                                          "the wire, without a jar."),
    "subscribe": Option(_ONE_OF_THREE, "Topics by name: `orders,flights`."),
    "subscribePattern": Option(_ONE_OF_THREE, "Topics by a regular expression of Python that "
        "matches the whole name. Internal topics never match."),
    "assign": Option(_ONE_OF_THREE, 'Partitions: `{"orders":[0,1]}`.'),
    "startingOffsets": Option("earliest; of a stream latest", "`earliest`, or an offset for each "
        'partition that is read: `{"orders":{"0":23,"1":-2}}`, -2 for earliest; or by topic: '
        '`{"orders":"earliest"}`. A stream takes `latest`, too, and -1.'),
    "endingOffsets": Option("latest", "`latest`, or an offset for each partition, not read itself; "
        '-1 for latest; or by topic: `{"orders":"latest"}`.', (BATCH,)),
    "startingTimestamp": Option("", "Start at the first record at or after this time, in "
                                    "milliseconds since 1970 UTC; -1, -2, -3: at the end, at "
                                    "the start, at the first record with the largest time. "
                                    "Overrides the two other ways to start."),
    "endingTimestamp": Option("", "End before the first record at or after this time.", (BATCH,)),
    "startingOffsetsByTimestamp": Option("", "As startingTimestamp, by partition: "
                                             '`{"orders":{"0":1735689600000}}`. Overrides '
                                             "startingOffsets."),
    "endingOffsetsByTimestamp": Option("", "As endingTimestamp, by partition.", (BATCH,)),
    "startingOffsetsByTimestampStrategy": Option("error", "When no record is at or after the "
        "time: `error`, or `latest` to start at the end."),
    "failOnDataLoss": Option("true", "Fail if requested offsets are not there; `false`: warn, "
                                     "and read what is there. Offsets that compaction "
                                     "removed are no loss."),
    "minPartitions": Option("", "Make at least this many tasks, if necessary by splitting "
                                "batches."),
    "maxRecordsPerPartition": Option("", "At most this many offsets in a task."),
    "maxBytesPerPartition": Option("128m; of a stream 32m", "Cut larger ranges where a batch "
        "begins, into tasks of about this size on disk. Ranges below a quarter of it share a "
        "task, up to 250,000 offsets."),
    "maxOffsetsPerTrigger": Option("", "At most about this many offsets in a micro-batch, shared "
        "out by how far each partition lags.", (STREAM,)),
    "minOffsetsPerTrigger": Option("", "No micro-batch below this many offsets, unless "
                                       "`maxTriggerDelay` has passed.",
        (STREAM,)),
    "maxTriggerDelay": Option("15m", "After this time a micro-batch starts, however small: "
                                     "`90s`, `15m`.",
        (STREAM,)),
    "maxBytesPerTrigger": Option("", "The same in bytes on disk: `64m`; at least one record "
                                     "batch of each partition that has records.", (STREAM,)),
    "onlyFlushed": Option("false", "Read only what is on disk, not what a power cut may take.",
        (STREAM,)),
    "retentionHold": Option("", "A name, unique to this query: retention keeps what it has not "
                                "read.", (STREAM,)),
    "retentionHoldMaxBytes": Option("10g", "Limit per partition; beyond it the oldest segments "
                                           "are deleted.",
        (STREAM,)),
    "retentionHoldMaxAge": Option("1d", "For how long the query may be down; `7d` at most.",
        (STREAM,)),
    "isolation.level": Option("read_committed", "`read_uncommitted`: also the records of "
                                                "aborted and open transactions. "
                                                "`kafka.isolation.level` is understood, too."),
    "includeHeaders": Option("false", "Add the column `headers`."),
    "columns": Option("", "Only these columns: `value,offset`. Other columns are not decoded."),
    "clientConfigFile": Option("", CLIENT_CONFIG_FILE),
    "fetchOffset.numRetries": Option("3", "Brokers: how many times "
                                          "`kafka.default.api.timeout.ms` (60 s) to wait for "
                                          "topics and offsets from brokers that do not answer."),
    "kafkaConsumer.pollTimeoutMs": Option("120000", "Brokers: how many milliseconds a task "
                                                    "waits for the next records of its range."),
}  # fmt: skip
"""Every option that a read obeys."""

OF_BROKERS = ("clientConfigFile", "fetchOffset.numRetries", "kafkaConsumer.pollTimeoutMs")
"""Options without a meaning when a path is read."""

IGNORED = ("groupIdPrefix", "fetchOffset.retryIntervalMs")
"""Options of Spark's Kafka source that mean nothing here: warned about."""

REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are binary; convert the column",
    "kafka.value.deserializer": "values are binary; convert the column",
    "kafka.enable.auto.commit": "a read commits no offsets",
    "kafka.interceptor.classes": "there is no consumer to intercept",
}
"""Consumer settings that Spark's Kafka source refuses too, and what to do instead."""

CLIENT = (
    "check.crcs",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""Settings of a consumer that reading from brokers obeys, as `kafka.*`."""

NO_MEANING = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "enable.metrics.push",
    "exclude.internal.topics",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)
"""Those of Kafka's that change nothing here: warned about.  Any other one is refused."""


def options_of(mode: str) -> dict[str, Option]:
    """Those that belong to a mode."""
    return {name: option for name, option in OURS.items() if mode in option.modes}
