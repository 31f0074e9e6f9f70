"""Asks leaders where partitions with a lost position continue, by auto.offset.reset."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from kafkalog import errors
from kafkalog.client.calls.offsets import EARLIEST, LATEST, find_starts, list_offsets
from kafkalog.client.calls.results import Results
from kafkalog.client.fetch.core import FetchState, Lost
from kafkalog.client.fetch.epochs import FetchPosition
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import about
from kafkalog.client.link.patience import NotYet
from kafkalog.types import FoundOffset, TopicPartition

__all__ = ["Resets"]


class Resets:
    """Finds new positions for those that a fetcher's core has lost.  One thread."""

    def __init__(self, cluster: Cluster, core: FetchState) -> None:
        self._cluster = cluster
        self._core = core
        self._begun: dict[int, set[int]] = {}
        """By leader: the numbers of the losses in its current lookup."""

    def find(self) -> None:
        """Reset positions for which the answer is known; asks each leader once about all of its
        partitions.

        Raises: OffsetOutOfRange, without a reset; a permanent failure.
        """
        patience, core = self._cluster.patience, self._core
        for leader, some in core.resets().items():
            errand, numbers = f"reset by node {leader}", {lost.number for lost in some.values()}
            if not numbers <= self._begun.get(leader, numbers):
                patience.forget(errand)  # its answers do not cover the later losses
            self._begun[leader] = numbers
            try:
                with patience.errand_of(errand, 0):
                    found = self._starts(some)
            except NotYet:
                continue
            except errors.WakeUp:
                raise
            except errors.KafkalogError as problem:
                core.reset_failed(some, problem, time.monotonic())
            else:
                for tp, at in found.done.items():
                    core.reset(tp, some[tp], FetchPosition(at.offset, at.leader_epoch))
                for tp, why in found.errors.items():
                    core.reset_failed({tp: some[tp]}, why, time.monotonic())
            del self._begun[leader]

    def _starts(self, some: Mapping[TopicPartition, Lost]) -> Results[TopicPartition, FoundOffset]:
        """Where they continue.  Raises: OffsetOutOfRange, without a reset; as find_starts."""
        cluster, options = self._cluster, self._core.options
        if options.out_of_range != "error":
            return find_starts(cluster, some, options.out_of_range, options.committed)
        first, end = (list_offsets(cluster, _all(some, at)) for at in (EARLIEST, LATEST))
        tp, lost = next(iter(some.items()))
        found = f"{tp.topic}-{tp.partition}: offset {lost.at}"
        text = f"{found}, wanted {first[tp].offset} to {end[tp].offset}"
        raise about(tp, errors.OffsetOutOfRange(text))


def _all(some: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
    return dict.fromkeys(some, at)
