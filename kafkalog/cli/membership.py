"""`kafkalog consume --group`: reads this member's share of topics from the committed offsets on."""

import argparse
import signal
import threading
import time
from typing import TYPE_CHECKING

from kafkalog.cli.output import Output
from kafkalog.errors import WakeUp

if TYPE_CHECKING:
    from kafkalog.client.consumer.consumer import Consumer
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.types import Record, TopicPartition

__all__ = ["read_in_group"]

BLOCK = 1000
"""Records that are printed between checks."""
WAIT_MS = 500


class _Whole:
    """Ctrl-C waits for the end of the block, so that what was printed is committed, too.

    A second one does not: the output may be a pipe that nobody reads.
    """

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer
        self._noted = False

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        # Not if somebody else handles or ignores it.
        self._ours = self._before is signal.default_int_handler and (
            threading.current_thread() is threading.main_thread()
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True
        self._consumer.wakeup()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)
        if self._noted and (kind is None or issubclass(kind, WakeUp)):
            raise KeyboardInterrupt


def read_in_group(
    cluster: "Cluster", options: argparse.Namespace, topics: list[str], output: Output
) -> None:
    """Print the records of this member's partitions, and commit what was printed."""
    from kafkalog.client.consumer.consumer import Consumer

    for topic in topics:
        cluster.topic(topic)  # a missing topic is reported immediately
    consumer = Consumer(
        cluster,
        group=options.group,
        group_instance_id=options.instance_id,
        auto_offset_reset="none" if options.reset == "error" else options.reset,
        isolation=options.isolation,
        config={"allow.auto.create.topics": False},  # printing must not create a topic
    )
    try:
        with _Whole(consumer):
            _read_group(consumer, topics, options, output)
    finally:
        # Also after Ctrl-C: commits what was printed, and the other members need not wait.
        consumer.close()


def _read_group(
    consumer: "Consumer", topics: list[str], options: argparse.Namespace, output: Output
) -> None:
    ends: dict[TopicPartition, int] = {}
    shares: list[list[TopicPartition]] = []
    consumer.subscribe(topics, on_assigned=shares.append)
    heard_s = time.monotonic()
    wait_ms = WAIT_MS if options.timeout_ms is None else min(options.timeout_ms, WAIT_MS)
    while True:
        rows = consumer.poll(wait_ms, BLOCK)
        if rows:
            heard_s = time.monotonic()
            _show(consumer, rows, output)
            if output.enough():
                return
        if options.timeout_ms is not None:
            if time.monotonic() - heard_s > options.timeout_ms / 1000:
                return
        elif not options.follow and shares and _at_end(consumer, ends):
            return


def _show(consumer: "Consumer", rows: "list[Record]", output: Output) -> None:
    """Print; records that were not printed count as unread."""
    from kafkalog.types import TopicPartition

    last: Record | None = None
    try:
        last = output.write(rows)
    finally:
        if last is not rows[-1]:
            shown = 0 if last is None else next(i for i, r in enumerate(rows) if r is last) + 1
            for row in reversed(rows[shown:]):
                consumer.seek(TopicPartition(row.topic, row.partition), row.offset)


def _at_end(consumer: "Consumer", ends: "dict[TopicPartition, int]") -> bool:
    """True if every assigned partition was read to the end that it had when it was assigned."""
    new = [tp for tp in consumer.assignment if tp not in ends]
    if new:
        ends.update(consumer.end_offsets(new))
    return all(consumer.position(tp) >= ends[tp] for tp in consumer.assignment)
