"""`kafkalog consume --group`: a share of a broker's topics, and where it left off."""

import argparse
import signal
import threading
import time
from typing import TYPE_CHECKING

from kafkalog.cli.output import Output

if TYPE_CHECKING:
    from kafkalog.client.cluster import Cluster
    from kafkalog.client.consumer import GroupConsumer
    from kafkalog.types import TopicPartition

__all__ = ["read_in_group"]


class _Whole:
    """Ctrl-C waits for the end of the block, so that what was shown is committed, too.

    A second one does not: the output may be a pipe that nobody reads.
    """

    def __enter__(self) -> None:
        self._noted = False
        self._before = signal.getsignal(signal.SIGINT)
        # Not where somebody has set another answer to it, or has it ignored.
        self._ours = self._before is signal.default_int_handler and (
            threading.current_thread() is threading.main_thread()
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True

    def __exit__(self, kind: object, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)
        if self._noted and kind is None:
            raise KeyboardInterrupt


def read_in_group(
    cluster: "Cluster", options: argparse.Namespace, topics: list[str], output: Output
) -> None:
    """Print what the group gives this member, and commit what was printed."""
    from kafkalog.client.consumer import GroupConsumer, GroupOptions
    from kafkalog.client.fetcher import FetchOptions

    for topic in topics:
        cluster.topic(topic)  # one that does not exist is told at once
    how = GroupOptions(instance_id=options.instance_id, reset=options.reset)
    fetched = FetchOptions(committed=options.isolation == "read_committed")
    consumer = GroupConsumer(cluster, options.group, topics, how, fetched)
    try:
        _read_group(consumer, options, output)
    finally:
        # Also after Ctrl-C: what was printed is committed, and the others need not wait.
        consumer.close()


def _read_group(consumer: "GroupConsumer", options: argparse.Namespace, output: Output) -> None:
    ends: dict[TopicPartition, int] = {}
    heard_s = time.monotonic()
    wait_ms = None if options.timeout_ms is None else min(options.timeout_ms, 500)
    while True:
        for block in consumer.poll(wait_ms):
            heard_s = time.monotonic()
            rows = block.records()
            with _Whole():
                last = output.write(rows)
                if not rows or last is rows[-1]:
                    consumer.done(block.tp, block.next_offset)
                elif last is not None:
                    consumer.done(block.tp, last.offset + 1)
            if output.enough():
                return
        if options.timeout_ms is not None:
            if time.monotonic() - heard_s > options.timeout_ms / 1000:
                return
        elif not options.follow and _at_end(consumer, options, ends):
            return


def _at_end(
    consumer: "GroupConsumer", options: argparse.Namespace, ends: "dict[TopicPartition, int]"
) -> bool:
    """Whether every partition that it has was read to the end that it had when it came."""
    from kafkalog.client.offsets import LATEST, list_offsets

    new = [tp for tp in consumer.assignment if tp not in ends]
    if new:
        committed = options.isolation == "read_committed"
        found = list_offsets(consumer.cluster, dict.fromkeys(new, LATEST), committed)
        ends.update({tp: at.offset for tp, at in found.items()})
    positions = consumer.fetcher.positions
    return all(positions.get(tp, 0) >= ends[tp] for tp in consumer.assignment)
