"""Reads the metrics of replicas and of the cluster from the metadata, and counts elections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change, MetadataImage, Partition
    from kafkalog.metrics.metric import Readings
    from kafkalog.replication.membership import QuorumReplica
    from kafkalog.server.led_partitions import LedPartitions
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.types import TopicPartition

__all__ = ["Elections", "ImageCounts", "read_followers", "read_quorum"]

_CONTROLLER = "kafka_controller_kafkacontroller_"
_REPLICAS = "kafka_server_replicamanager_"
RAFT_STATES = ("leader", "follower", "candidate", "prospective", "resigned", "unattached")


class Elections:
    """Counts what happens to partitions: elections of leaders, changes of the ISRs of those led
    here.  Call `changed` after each change of the metadata, in order."""

    def __init__(self, node: int) -> None:
        """`node`: this one."""
        self._node = node
        self._lock = threading.Lock()  # guards what follows; held for a moment
        self._elections = self._unclean = self._shrinks = self._expands = 0

    def changed(self, change: Change) -> None:
        """Look at the changed topics."""
        for topic in change.changed:
            before = change.old.topic(topic.id)
            if before is None:
                continue
            for number, new in topic.partitions.items():
                old = before.partitions.get(number)
                if old is not None and old != new:
                    self._count(old, new)

    def _count(self, old: Partition, new: Partition) -> None:
        elected = new.leader_epoch > old.leader_epoch and new.leader != NO_LEADER
        in_sync = {*old.isr, *old.eligible_leader_replicas}
        left, came = set(old.isr) - set(new.isr), set(new.isr) - set(old.isr)
        led = new.leader == self._node
        with self._lock:
            self._elections += elected
            self._unclean += elected and new.leader not in in_sync
            self._shrinks += bool(led and left)
            self._expands += bool(led and came)

    def read(self, readings: Readings) -> None:
        """Read the counts."""
        with self._lock:
            readings.add("kafkalog_leader_elections_total", self._elections)
            readings.add("kafka_controller_controllerstats_uncleanleaderelections_total",
                         self._unclean)  # fmt: skip
            readings.add(f"{_REPLICAS}isrshrinks_total", self._shrinks)
            readings.add(f"{_REPLICAS}isrexpands_total", self._expands)


class _Counts(NamedTuple):
    """The partitions of an image, as one node sees them."""

    partitions: int = 0
    leaderless: int = 0
    not_preferred: int = 0
    leads: int = 0
    keeps: int = 0
    under: int = 0
    under_min: int = 0
    at_min: int = 0
    moving: int = 0


class ImageCounts:
    """Counts partitions, once for each state of the metadata.  Safe to use from many threads."""

    def __init__(self, min_isr: Callable[[str], int] | None = None) -> None:
        """`min_isr`: a topic's min.insync.replicas; None: this node keeps no replicas."""
        self._min_isr = min_isr
        self._last: tuple[Any, _Counts] | None = None

    def _counts(self, image: MetadataImage, node: int) -> _Counts:
        last = self._last
        if last is not None and last[0] is image:
            return last[1]
        found = _counted(image, node, self._min_isr)
        self._last = image, found
        return found

    def read(self, readings: Readings, image: MetadataImage, node: int) -> None:
        """Read an image."""
        found = self._counts(image, node)
        living = len(image.living)
        for name, value in (
            ("globaltopiccount", len(image.topics)),
            ("globalpartitioncount", found.partitions),
            ("offlinepartitionscount", found.leaderless),
            ("preferredreplicaimbalancecount", found.not_preferred),
            ("activebrokercount", living),
            ("fencedbrokercount", len(image.brokers) - living),
            ("lastappliedrecordoffset", image.offset),
        ):
            readings.add(_CONTROLLER + name, value)
        if self._min_isr is None:
            return
        for name, value in (
            ("leadercount", found.leads),
            ("partitioncount", found.keeps),
            ("underreplicatedpartitions", found.under),
            ("underminisrpartitioncount", found.under_min),
            ("atminisrpartitioncount", found.at_min),
            ("reassigningpartitions", found.moving),
        ):
            readings.add(_REPLICAS + name, value)


def _counted(image: MetadataImage, node: int, min_isr: Callable[[str], int] | None) -> _Counts:
    """Plain numbers: it may be a hundred thousand partitions."""
    partitions = leaderless = not_preferred = leads = keeps = 0
    under = under_min = at_min = moving = 0
    for topic in image.topics.values():
        least = min_isr(topic.name) if min_isr is not None else 1
        for one in topic.partitions.values():
            replicas, leader = one.replicas, one.leader
            partitions += 1
            leaderless += leader == NO_LEADER
            not_preferred += leader not in replicas[:1]
            keeps += node in replicas
            if leader != node:
                continue
            leads += 1
            in_sync, wanted = len(one.isr), min(least, len(replicas))
            under += in_sync < len(replicas)
            under_min += in_sync < wanted
            at_min += in_sync == wanted
            moving += bool(one.adding_replicas or one.removing_replicas)
    return _Counts(partitions, leaderless, not_preferred, leads, keeps, under, under_min, at_min,
                   moving)  # fmt: skip


def read_followers(
    readings: Readings, reactor: Reactor, led: LedPartitions, logs: Mapping[TopicPartition, Any]
) -> None:
    """Read how far the followers of the partitions led here are.  Where all replicas are in sync
    and consumers see the end, nobody lacks anything: only the others are asked about."""
    lags: dict[int, int] = {}
    for tp in led.partitions():
        isr, log = led.isr(tp), logs.get(tp)
        if isr is None or log is None:
            continue  # it has left since
        for node in isr.replicas:
            if node != isr.leader:
                lags.setdefault(node, 0)
        end = log.log_end_offset
        if len(isr.in_sync) == len(isr.replicas) and log.high_watermark >= end:
            continue
        with suppress(KafkalogError):
            for one in reactor.followers(*tp):
                lag = end - max(one.log_end, 0)
                lags[one.follower.id] = max(lags.get(one.follower.id, 0), lag)
    for node, lag in sorted(lags.items()):
        readings.add("kafkalog_follower_lag_records", lag, broker=str(node))


def read_quorum(readings: Readings, replica: QuorumReplica) -> None:
    """Read a controller's replica of the metadata log; nothing before it takes part."""
    seen = replica.standing()
    if seen is None:
        return
    raft = "kafka_server_raft_metrics_"
    readings.add(f"{raft}current_leader", seen.leader)
    readings.add(f"{raft}current_epoch", seen.epoch)
    readings.add(f"{raft}high_watermark", seen.high_watermark)
    readings.add(f"{raft}log_end_offset", seen.log_end)
    for state in RAFT_STATES:
        readings.add("kafkalog_raft_state", int(state == seen.state), state=state)
