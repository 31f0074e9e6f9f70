"""The driver's part: staged rows become records of the target, in one transaction.

The transaction also commits the number behind the batch as an offset of the group that has the
sink's name.  So whoever finds this number there knows that the batch is in the target, whole;
a batch that Spark runs again is found, and dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .open_transactions import Placed, end_dead, tell_blocking
from .options import WriteOptions
from .rows import SinkError
from .staging import Part, Staged, forget, staged_batches

if TYPE_CHECKING:
    from kafkalog import Admin, Producer
    from kafkalog.client.delivery import ManyFuture
    from kafkalog.client.groups import Committed

_log = logging.getLogger("pyspark_kafkalog")

BATCH_WRITES = "spark-write"
"""The transactional id of all batch writes into directories, which come one after the other."""
COMMITS = 5
"""How often a commit is asked for that is not answered, for `max.block.ms` each."""


def deliver(
    options: WriteOptions, sink: str, batch_id: int | None, staged: Sequence[Staged]
) -> None:
    """Write what tasks staged, unless the target has this batch already.

    `batch_id` None: a write that is not recognised when it comes again.  What was staged is
    removed when the target has it.

    Raises: SinkError, and nothing of it is there for who reads what is committed, or it says that
    this is not known.
    """
    import kafkalog

    _check_versions(staged, kafkalog.__version__)
    parts = [part for one in staged for part in one.parts if part.records]
    if parts:
        try:
            with _target(options) as where:
                _write(options, where, sink, batch_id, staged[0].query, parts)
        except (kafkalog.KafkalogError, OSError) as error:
            raise SinkError(
                f"{sink}, batch {batch_id}: {options.target}: {type(error).__name__}: {error}"
            ) from error
    for one in staged:
        forget(options, sink, one.batch)


@contextmanager
def _target(options: WriteOptions) -> Iterator[Any]:
    """What clients are made of: addresses, or a store that is open meanwhile."""
    import kafkalog

    if options.path is None:
        yield options.servers
        return
    try:
        store = kafkalog.Store(options.path)
    except kafkalog.Locked as error:
        raise SinkError(
            f"{error}. While a broker has the directory, write to it: "
            "option 'kafka.bootstrap.servers' in place of the path"
        ) from error
    with store:
        yield store


def _write(
    options: WriteOptions,
    where: Any,
    sink: str,
    batch_id: int | None,
    query: str,
    parts: Sequence[Part],
) -> None:
    import kafkalog

    topics = sorted({part.topic for part in parts})
    if options.path is not None:
        end_dead(where, topics)
    name = BATCH_WRITES if options.path is not None and batch_id is None else sink
    placed = Placed()
    with kafkalog.Producer(where, transactional_id=name, config=dict(options.producer)) as producer:
        # Whoever wrote as this sink before can do so no more; what it left open is ended.
        producer.init_transactions()
        if batch_id is not None:
            last = _next_batch(options, where, sink)
            if last is not None and last.offset > batch_id:
                _tell_dropped(options, sink, batch_id, query, last)
                return
        try:
            with producer.transaction():
                for part in parts:
                    for sent in _send(producer, part):
                        placed.note(sent)
                if batch_id is not None:
                    # Of every topic: a group's offsets of a topic that is deleted go with it.
                    number = (batch_id + 1, -1, query)
                    offsets = {kafkalog.TopicPartition(topic, 0): number for topic in topics}
                    producer.send_offsets(offsets, sink)
        except kafkalog.Timeout as error:
            _end(producer, error)
    if options.path is None:
        with _admin(options, where) as admin:
            tell_blocking(options, f"{sink}, batch {batch_id}", admin, placed)


def _end(producer: Producer, unanswered: Exception) -> None:
    """Ask again for a commit that was not answered, and may have been made.

    Raises: `unanswered`, when it was no commit; SinkError, when nobody answers.
    """
    import kafkalog

    for _ in range(COMMITS - 1):
        try:
            producer.commit_transaction()
            return
        except kafkalog.InvalidTxnState:
            raise unanswered from None  # it was given up, and nothing is there
        except kafkalog.Timeout as error:
            unanswered = error
    raise SinkError(
        f"the commit was asked for {COMMITS} times and not answered: all rows may be there, or "
        "none; look before they are written again, or give `sinkId` and `batchId`, by which the "
        f"target knows them: {unanswered}"
    ) from unanswered


def _send(producer: Producer, part: Part) -> list[ManyFuture]:
    return [
        producer.send_batches(part.topic, batches, partition=part.partition)
        for batches in staged_batches(part)
    ]


def _next_batch(options: WriteOptions, where: Any, sink: str) -> Committed | None:
    """The number behind the last batch that the target has from a sink, and whose it was."""
    with _admin(options, where) as admin:
        committed = admin.list_group_offsets(sink)
    return max(committed.values(), key=lambda one: one.offset, default=None)


def _admin(options: WriteOptions, where: Any) -> Admin:
    import kafkalog
    from kafkalog.config.admin import AdminConfig

    known = AdminConfig.names()
    config = {name: text for name, text in options.producer if name in known}
    return kafkalog.Admin(where, config=config)


def _tell_dropped(
    options: WriteOptions, sink: str, batch_id: int, query: str, last: Committed
) -> None:
    """Of a batch that the target has: a word when it may not be this one."""
    another = last.metadata if query and last.metadata not in ("", None, query) else None
    if another is None and last.offset == batch_id + 1:
        _log.info("%s, batch %d: the target has it; it is not written again", sink, batch_id)
        return
    whose = f" of another query, {another} (this one is {query})" if another else ""
    _log.warning(
        "sinkId %s, batch %d: not written: there are batches up to %d%s in %s. Rows that are not "
        "among those are left out: a new checkpoint, or a job with numbers of its own, wants a "
        "sinkId of its own",
        sink, batch_id, last.offset - 1, whose, options.target,
    )  # fmt: skip


def _check_versions(staged: Sequence[Staged], ours: str) -> None:
    for one in staged:
        if one.staged_with != ours:
            raise SinkError(
                f"kafkalog {one.staged_with} on {one.host}, but {ours} on the driver: "
                "install one version"
            )
