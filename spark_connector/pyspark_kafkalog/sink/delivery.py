"""The driver's part: staged rows become records of the target, in one transaction.

The transaction also commits which batch it is, as offsets of a group: see `memory`.  A batch that
Spark repeats is found complete in the target, and dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..client_options import resolved
from ..patience import Patience, patiently
from ..worker import settle
from .ageing import old_topics, tell_ageing
from .blocking import Placed, end_dead, tell_blocking
from .memory import Memory, Write, drop, find, offsets, recall, tell_moved, write_of
from .options import WriteOptions
from .rows import SinkError
from .staging import Part, Staged, forget, staged_batches, staged_log
from .upkeep import SEGMENTS, compact_journals

if TYPE_CHECKING:
    from kafkalog import Admin, Log, Producer
    from kafkalog.client.buffer.delivery import ManyFuture

_log = logging.getLogger(__name__)
BATCH_WRITES = "spark-write"
"""The transactional id of all batch writes into directories, which take turns."""
COMMITS = 5
"""How often an unanswered commit is retried, for `max.block.ms` each."""


def deliver(
    options: WriteOptions, sink: str, batch_id: int | None, staged: Sequence[Staged]
) -> None:
    """Write what tasks staged, unless the target already has this batch.

    `batch_id` None: a write that is not recognised when it is repeated.  Staged rows are
    removed once the target has them.

    Raises: SinkError: readers of committed records see none of its rows, unless the error says that
    the outcome is unknown.
    """
    import kafkalog

    _check_versions(staged, kafkalog.__version__)
    parts = [part for one in staged for part in one.parts if part.records]
    if parts:
        write = None if batch_id is None else write_of(options, sink, batch_id, staged)
        try:
            with _target(options) as where:
                _write(options, where, sink, write, parts)
        except (kafkalog.KafkalogError, OSError) as error:
            raise SinkError(
                f"{sink}, batch {batch_id}: {options.target}: {type(error).__name__}: {error}"
            ) from error
    for one in staged:
        forget(options, sink, one.batch)
    settle()


@contextmanager
def _target(options: WriteOptions) -> Iterator[Any]:
    """The target of clients: addresses, or a store that is open for the length of the block."""
    import kafkalog

    path = options.path
    if path is None:
        yield options.servers
        return
    patience = _patience(options)
    try:
        broker = patiently(
            lambda: kafkalog.Broker(path, listeners=(), config=SEGMENTS), patience, path
        )
    except kafkalog.Locked as error:
        raise SinkError(
            f"{error}; waited for {patience.wait_ms / 1000:g} s (kafka.delivery.timeout.ms). A "
            "delivery needs the directory for itself: read it without its lock, as "
            "kafkalog.polars.scan, kafkalog.pandas.read and Log(folder, mode='r') do; and if a "
            "broker has it, write to the broker: option 'kafka.bootstrap.servers' in place of the "
            "path"
        ) from error
    with broker:
        yield broker.store
        compact_journals(broker)


def _write(
    options: WriteOptions, where: Any, sink: str, write: Write | None, parts: Sequence[Part]
) -> None:
    """`write`: how a repetition is recognised; None: not at all."""
    import kafkalog

    if options.path is not None:
        end_dead(where, {part.topic for part in parts})
    name = BATCH_WRITES if options.path is not None and write is None else sink
    memory: Memory = {}
    placed = Placed()
    config = resolved(dict(options.producer))
    with kafkalog.Producer(where, transactional_id=name, config=config) as producer:
        # Fences an earlier writer of this sink, and ends what it left open.
        patiently(producer.init_transactions, _patience(options), options.target)
        if write is not None:
            memory = _recall(options, where, write)
            if (last := find(write, memory)) is not None:
                drop(write, last, options.target)
                return
            tell_moved(write, memory)
        try:
            with producer.transaction():
                _send_all(producer, parts, placed)
                if write is not None:
                    producer.send_offsets(offsets(write, memory), write.group)
        except kafkalog.Timeout as error:
            _end(producer, error)
    _tell(options, where, f"{sink}, batch {write.batch}" if write is not None else sink, placed)
    _tell_ageing(options, where, parts)


def _tell(options: WriteOptions, where: Any, what: str, placed: Placed) -> None:
    if options.path is not None:
        return  # `end_dead` left none
    try:
        with _admin(options, where) as admin:
            tell_blocking(options, what, admin, placed)
    except Exception:  # the rows are there: writing them again would duplicate them
        _log.exception("%s: cannot tell whether open transactions hide it", what)


def _tell_ageing(options: WriteOptions, where: Any, parts: Sequence[Part]) -> None:
    ages_ms = old_topics(options.target, parts, time.time_ns() // 1_000_000)
    if not ages_ms:
        return
    try:
        with _admin(options, where) as admin:
            tell_ageing(admin, options.target, ages_ms)
    except Exception:  # as in _tell
        _log.exception("%s: cannot tell whether retention takes the rows", options.target)


def _end(producer: Producer, unanswered: Exception) -> None:
    """Retry a commit that was not answered, and may have been made.

    Raises: `unanswered`, if it was no commit; SinkError, if nobody answers.
    """
    import kafkalog

    for _ in range(COMMITS - 1):
        try:
            producer.commit_transaction()
            return
        except kafkalog.errors.InvalidTxnState:
            raise unanswered from None  # it was abandoned, and nothing is there
        except kafkalog.Timeout as error:
            unanswered = error
    raise SinkError(
        f"the commit was sent {COMMITS} times and not answered: all rows may be there, or "
        "none; check before you write them again, or give `sinkId` and `batchId`, by which the "
        f"target knows them: {unanswered}"
    ) from unanswered


def _send_all(producer: Producer, parts: Sequence[Part], placed: Placed) -> None:
    """Put parts of one task next to each other, so that its log is opened once."""
    for folder, some in groupby(parts, key=lambda part: part.folder):
        with staged_log(folder) as log:
            for part in some:
                for sent in _send(producer, part, log):
                    placed.note(sent)


def _send(producer: Producer, part: Part, log: Log) -> list[ManyFuture]:
    return [
        producer.send_batches(part.topic, batches, partition=part.partition)
        for batches in staged_batches(log, part)
    ]


def _recall(options: WriteOptions, where: Any, write: Write) -> Memory:
    with _admin(options, where) as admin:
        return patiently(lambda: recall(admin, write), _patience(options), options.target)


def _patience(options: WriteOptions) -> Patience:
    """A delivery waits for its target as long as a record waits for its acknowledgement."""
    from kafkalog.config.producer import ProducerConfig

    config = ProducerConfig.of(resolved(dict(options.producer)))
    return Patience(
        config.delivery_timeout_ms, config.retry_backoff_ms, config.retry_backoff_max_ms
    )


def _admin(options: WriteOptions, where: Any) -> Admin:
    import kafkalog
    from kafkalog.config.admin import AdminConfig

    known, found = AdminConfig.names(), resolved(dict(options.producer))
    config = {name: text for name, text in found.items() if name in known}
    return kafkalog.Admin(where, config=config)


def _check_versions(staged: Sequence[Staged], ours: str) -> None:
    for one in staged:
        if one.staged_with != ours:
            raise SinkError(
                f"kafkalog {one.staged_with} on {one.host}, but {ours} on the driver: "
                "install one version"
            )
