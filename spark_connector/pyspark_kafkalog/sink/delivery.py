"""The driver's part: staged rows become records of the target, in one transaction.

The transaction also commits the number behind the batch as an offset of the group that has the
sink's name.  So whoever finds this number there knows that the batch is in the target, whole;
a batch that Spark runs again is found, and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .options import WriteOptions
from .rows import SinkError
from .staging import Part, Staged, forget, staged_batches

if TYPE_CHECKING:
    from kafkalog import Producer


def deliver(
    options: WriteOptions, sink: str, batch_id: int | None, staged: Sequence[Staged]
) -> bool:
    """Write what tasks staged; False: the target has this batch already.

    `batch_id` None: a write that is not recognised when it comes again.  What was staged is
    removed when the target has it.

    Raises: SinkError, and nothing of it is there for who reads what is committed.
    """
    import kafkalog

    _check_versions(staged, kafkalog.__version__)
    parts = [part for one in staged for part in one.parts if part.records]
    written = True
    if parts:
        try:
            with _target(options) as where:
                written = _write(options, where, sink, batch_id, parts)
        except (kafkalog.KafkalogError, OSError) as error:
            raise SinkError(
                f"{sink}, batch {batch_id}: {options.target}: {type(error).__name__}: {error}"
            ) from error
    for one in staged:
        forget(options, sink, one.batch)
    return written


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
    options: WriteOptions, where: Any, sink: str, batch_id: int | None, parts: Sequence[Part]
) -> bool:
    import kafkalog

    with kafkalog.Producer(where, transactional_id=sink, config=dict(options.producer)) as producer:
        # Whoever wrote as this sink before can do so no more; what it left open is ended.
        producer.init_transactions()
        if batch_id is not None and _next_batch(where, sink) > batch_id:
            return False
        with producer.transaction():
            for part in parts:
                _send(producer, part)
            if batch_id is not None:
                # Of every topic: a group's offsets of a topic that is deleted go with it.
                topics = sorted({part.topic for part in parts})
                offsets = {kafkalog.TopicPartition(topic, 0): batch_id + 1 for topic in topics}
                producer.send_offsets(offsets, sink)
    return True


def _send(producer: Producer, part: Part) -> None:
    for batches in staged_batches(part):
        producer.send_batches(part.topic, batches, partition=part.partition)


def _next_batch(where: Any, sink: str) -> int:
    """The number behind the last batch that the target has from a sink; 0: none."""
    import kafkalog

    with kafkalog.Admin(where) as admin:
        committed = admin.list_group_offsets(sink)
    return max((one.offset for one in committed.values()), default=0)


def _check_versions(staged: Sequence[Staged], ours: str) -> None:
    for one in staged:
        if one.staged_with != ours:
            raise SinkError(
                f"kafkalog {one.staged_with} on {one.host}, but {ours} on the driver: "
                "install one version"
            )
