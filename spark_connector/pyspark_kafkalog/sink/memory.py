"""A target's memory of a sink: offsets of a group, committed with each batch's rows.

The group's name begins with GROUP, so that no consumer group has it.  For every topic that a batch
went to, it has an offset for partition 0: the number after the batch, with metadata that says which
writes of that batch went there.  A stream writes a batch once.  `foreachBatch` may write it several
times under one sinkId; such writes are distinguished by their sets of topics.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .options import WriteOptions, checkpoint_place
from .rows import SinkError
from .staging import Staged

if TYPE_CHECKING:
    from kafkalog import Admin, TopicPartition
    from kafkalog.client.calls.groups import CommittedOffset

_log = logging.getLogger("pyspark_kafkalog")

GROUP = "spark-sink-"
"""The prefix of a sinkId.  Older versions had none, and shared consumer groups' names."""
WRITES_MAX = 64
"""Most writes of one batch to one topic; Kafka keeps 4096 bytes of metadata."""
LOOK_MAX = 1000
"""Most checkpoints that are looked at to find a query's."""
CHECKPOINT_MAX = 500
"""How many characters of a checkpoint's path are kept, from its end."""
TOLD = 5
"""How many topics a message names."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Write(NamedTuple):
    """A write that the target recognises when it is repeated."""

    sink: str
    batch: int
    query: str
    """The id of a stream's query; empty for a batch write."""
    run: str
    """For a batch write in foreachBatch: the query's run; else empty."""
    topics: tuple[str, ...]
    """Sorted."""
    rows: int
    checkpoint: str = ""
    """For a stream; empty if it is not known."""
    named: bool = False
    """True if the option sinkId gave the sink its name."""

    @property
    def group(self) -> str:
        """The group whose offsets remember it."""
        return GROUP + self.sink

    @property
    def name(self) -> str:
        """Its name among the writes of its batch."""
        return hashlib.sha256("\n".join(self.topics).encode()).hexdigest()[:16]


class Remembered(NamedTuple):
    """The last batch of a sink in one topic."""

    batch: int
    query: str
    run: str
    writes: Mapping[str, int]
    """Rows by `Write.name`; empty if an older version wrote it, which knew only the batch."""
    checkpoint: str = ""


Memory = Mapping[str, Remembered]
"""By topic."""


def write_of(options: WriteOptions, sink: str, batch: int, staged: Sequence[Staged]) -> Write:
    """The write for what tasks staged."""
    parts = [part for one in staged for part in one.parts if part.records]
    topics = sorted({part.topic for part in parts})
    rows = sum(part.records for part in parts)
    checkpoint = options.checkpoint or _by_session(options, staged[0])
    return Write(
        sink, batch, staged[0].query, staged[0].run, tuple(topics), rows,
        checkpoint[-CHECKPOINT_MAX:], options.sink_id is not None,
    )  # fmt: skip


def _by_session(options: WriteOptions, staged: Staged) -> str:
    """The checkpoint of a query that has it from the session's setting; empty: it has not.

    Spark makes it below that folder, with the query's name; it draws one for a query without.
    """
    if not staged.checkpoints:
        return ""
    folder = checkpoint_place(staged.checkpoints)
    if options.query_name:
        return os.path.join(folder, options.query_name)
    try:
        with os.scandir(folder) as found:
            newest = sorted(found, key=lambda one: one.stat().st_mtime_ns, reverse=True)
    except OSError:  # elsewhere than on this machine
        return folder
    for one in newest[:LOOK_MAX]:
        try:
            with open(os.path.join(one.path, "metadata")) as file:
                if json.loads(file.read(CHECKPOINT_MAX))["id"] == staged.query:
                    return one.path
        except (OSError, ValueError, TypeError, KeyError):
            continue  # no checkpoint
    return folder


def recall(admin: Admin, write: Write) -> Memory:
    """The target's memory of the write's sink.

    Raises: SinkError, if another application commits offsets for this group; KafkalogError.
    """
    memory = {
        tp.topic: _read(write.group, tp, one)
        for tp, one in admin.list_group_offsets(write.group).items()
    }
    if all(topic in memory for topic in write.topics):
        return memory
    return {**_older(admin, write), **memory}


def _read(group: str, tp: TopicPartition, one: CommittedOffset) -> Remembered:
    try:
        found = json.loads(one.metadata or "")
        query, run, writes = found["query"], found["run"], found["writes"]
        if tp.partition or not isinstance(writes, dict):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise SinkError(
            f"group {group}: found offset {one.offset} of {tp.topic}-{tp.partition} with the "
            f"metadata {(one.metadata or '')[:80]!r}, wanted only what a sink commits: give the "
            "other application that uses this group another one, or this sink another sinkId"
        ) from None
    return Remembered(one.offset - 1, query, run, writes, str(found.get("checkpoint", "")))


def _older(admin: Admin, write: Write) -> Memory:
    """The memory of an older version, which knew only the batch and used the sink's own name.

    A consumer group with this name has offsets, too: they do not count.
    """
    committed = admin.list_group_offsets(write.sink)
    found = {
        tp.topic: Remembered(one.offset - 1, one.metadata or "", "", {})
        for tp, one in committed.items()
        if tp.partition == 0 and one.leader_epoch == -1
    }
    if write.query:  # the id of a query
        return {topic: one for topic, one in found.items() if _UUID.fullmatch(one.query)}
    found = {topic: one for topic, one in found.items() if not one.query}
    return found if found and _has_no_consumers(admin, write.sink) else {}


def _has_no_consumers(admin: Admin, group: str) -> bool:
    """True if a group with offsets never had members."""
    from kafkalog import KafkalogError
    from kafkalog.wire.error_codes import ErrorCode

    try:
        info = admin.describe_groups([group])[group]
    except KafkalogError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # it is one of KIP-848
            return False
        raise
    return info.state == "Empty" and not info.protocol_type


def find(write: Write, memory: Memory) -> Remembered | None:
    """Why a write must be dropped: it, or a later batch, is in the target."""
    if write.query:  # a stream's: there is no other write of this batch
        known = [one for one in memory.values() if one.batch >= write.batch]
    else:
        known = [
            one
            for one in (memory[topic] for topic in write.topics if topic in memory)
            if one.batch > write.batch
            or (one.batch == write.batch and (not one.writes or write.name in one.writes))
        ]
    return max(known, key=lambda one: one.batch, default=None)


def offsets(write: Write, memory: Memory) -> dict[TopicPartition, tuple[int, int, str]]:
    """The offsets by which the target will recognise the write.

    Raises: SinkError, if there are too many writes of one batch.
    """
    import kafkalog

    found = {}
    for topic in write.topics:  # in every topic, as a deleted topic takes its offset along
        last = memory.get(topic)
        others = last.writes if last is not None and last.batch == write.batch else {}
        writes = {**others, write.name: write.rows}
        if len(writes) > WRITES_MAX:
            raise SinkError(
                f"sinkId {write.sink}, batch {write.batch}: found {len(writes)} writes to topic "
                f"{topic}, wanted at most {WRITES_MAX}: give some of them a sinkId of their own"
            )
        told = {"query": write.query, "run": write.run, "writes": writes}
        if write.checkpoint:
            told["checkpoint"] = write.checkpoint
        text = json.dumps(told, separators=(",", ":"))
        found[kafkalog.TopicPartition(topic, 0)] = (write.batch + 1, -1, text)
    return found


def drop(write: Write, last: Remembered, target: str) -> None:
    """Log that a write is dropped: as a warning, unless it is the same write repeated.

    Raises: SinkError, if it is, or may be, another write of the batch.
    """
    forked = last.batch > write.batch or _elsewhere(write, last)
    if write.query and last.query == write.query and forked:
        _drop_forked(write, last, target)
        return
    another = last.query if write.query and last.query not in ("", write.query) else None
    if another is None and last.batch == write.batch:
        _drop_again(write, last, target)
        return
    whose = f" of another query, {another} (this one is {write.query})" if another else ""
    _log.warning(
        "sinkId %s, batch %d: not written: there are batches up to %d%s in %s. Rows that are not "
        "among those are left out: a new checkpoint, or a job with numbers of its own, wants a "
        "sinkId of its own",
        write.sink, write.batch, last.batch, whose, target,
    )  # fmt: skip


def _elsewhere(write: Write, last: Remembered) -> bool:
    """True if the two have different checkpoints."""
    return bool(write.checkpoint and last.checkpoint) and write.checkpoint != last.checkpoint


def _drop_forked(write: Write, last: Remembered, target: str) -> None:
    """Drop a batch of a query that the target has from another copy of its checkpoint.

    Raises: SinkError, unless the sinkId says that they are one.
    """
    text = (
        f"query {write.query}, batch {write.batch}: not written: {target} has batches up to "
        f"{last.batch} of this query, from its checkpoint {last.checkpoint or '(not known)'}; this "
        f"one is {write.checkpoint or '(not known)'}"
    )
    if write.named:
        _log.warning("sinkId %s, %s. Rows that are not among those are left out", write.sink, text)
        return
    raise SinkError(
        f"{text}, a copy of it, or an older state. Rows of this batch may be there or not: to "
        "write it, at the risk of repeated rows, set the option 'sinkId' to a new name; if the "
        "checkpoint was moved, and no other query has it, to the query's id, "
        f"{write.query}, which drops what the target has by its number"
    )


def tell_moved(write: Write, memory: Memory) -> None:
    """Warn that a query continues with another checkpoint."""
    last = max(memory.values(), key=lambda one: one.batch, default=None)
    if last is not None and write.query and last.query == write.query and _elsewhere(write, last):
        _log.warning(
            "query %s, batch %d: its batches up to %d were written from the checkpoint %s; this "
            "one is %s. If both are in use, one of the two queries will fail",
            write.query, write.batch, last.batch, last.checkpoint, write.checkpoint,
        )  # fmt: skip


def _drop_again(write: Write, last: Remembered, target: str) -> None:
    """Drop a write of the last batch: the one that the target has, by its topics."""
    rows = last.writes.get(write.name, write.rows)
    if rows == write.rows and not (write.run and write.run == last.run):
        _log.info("%s, batch %d: the target has it; it is not written again",
                  write.sink, write.batch)  # fmt: skip
        return
    topics = ", ".join(write.topics[:TOLD]) + (", ..." if len(write.topics) > TOLD else "")
    text = (
        f"sinkId {write.sink}, batch {write.batch}: not written: {target} has this batch in "
        f"{topics} with {rows} rows, and this write has {write.rows}"
    )
    if not write.query:
        text += ". Two writes of a batch to the same topics need different sinkIds"
    # One run of a query calls foreachBatch once for a batch.
    if rows != write.rows and write.run and write.run == last.run:
        raise SinkError(text)
    _log.warning("%s", text)
