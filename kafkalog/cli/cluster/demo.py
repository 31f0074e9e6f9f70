"""`kafkalog cluster try --demo`: kills a leader while records are written, and reports what became
of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.cli.cluster.failover import Moment, draw
from kafkalog.cli.common import CommandError
from kafkalog.cli.remote import say
from kafkalog.client.admin import Admin
from kafkalog.client.calls.copies import copy_offsets
from kafkalog.client.calls.nodes import ReplicaOf
from kafkalog.client.calls.offsets import LATEST, find_offsets
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.producer.producer import Producer
from kafkalog.errors import KafkalogError, TopicExists, UnknownTopicOrPartition
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.cli.cluster.tried import Tried
    from kafkalog.client.buffer.delivery import Delivery, Future

__all__ = ["show"]

TOPIC = TopicPartition("demo", 0)
LOAD_S = 1.0
"""How long to write before the kill, and after the next leader's first acknowledgement."""
PATIENCE_S = 60.0
LOOK_S = 0.05
LOOK_MS = 200
"""How long to wait for a node that does not report its log end."""
PAUSE_S = 0.002
"""Pause between records: the demo shows that none is lost, not how many it can write."""


def show(tried: Tried, picture: str | None) -> int:
    """Run it, and report; returns 0 if nothing was lost or duplicated."""
    with Admin(tried.servers) as admin:
        _make_topic(admin)
        watch = _Watch(tried.servers)
        load = _Load(tried.servers)
        try:
            victim = _kill_the_leader(tried, watch, load)
            time.sleep(LOAD_S)
            tried.begin(victim)
            watch.say(f"{load.count:,} acknowledged; node {victim} starts again")
            watch.until(lambda moment: len(moment.isr) == 3, "all three are in sync")
            watch.say("all three are in sync")
            time.sleep(LOAD_S / 2)
        finally:
            load.end()
            watch.end()
    lost = _compare(tried.servers, load)
    if picture is not None:
        with open(picture, "w", encoding="utf-8") as file:
            file.write(draw(watch.moments, watch.events))
        say(f"drawn: {picture}")
    return 1 if lost else 0


def _make_topic(admin: Admin) -> None:
    """A new topic; the previous run's is deleted in the background."""
    with suppress(UnknownTopicOrPartition):
        admin.delete_topic(TOPIC.topic)
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            admin.create_topic(TOPIC.topic, 1, 3, {"min.insync.replicas": 2})
            return
        except TopicExists:
            if time.monotonic() > end_s:
                raise
            time.sleep(LOOK_S)


def _kill_the_leader(tried: Tried, watch: _Watch, load: _Load) -> int:
    first = watch.until(lambda moment: moment.leader > 0 and len(moment.isr) == 3, "it is led")
    watch.say(f"node {first.leader} leads, nodes {', '.join(map(str, sorted(first.isr)))} are in "
              "sync; records are written with acks=all")  # fmt: skip
    time.sleep(LOAD_S)
    watch.say(f"{load.count:,} records acknowledged; kill -9 of node {first.leader}, the leader")
    tried.nodes[first.leader].kill()
    killed_s = time.monotonic()
    time.sleep(LOOK_S)
    count = load.count
    load.until(count + 1)
    after_s = load.last_s - killed_s
    then = watch.until(lambda moment: moment.leader not in (-1, first.leader), "another one leads")
    watch.say(f"node {then.leader} leads: the first acknowledgement after {after_s:.1f} s")
    return first.leader


class _Load:
    """Sends numbers as records, one after another, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self.sent: list[Future] = []
        """Deliveries by number."""
        self.count = 0
        """How many were acknowledged so far."""
        self.last_s = 0.0
        """When the last acknowledgement came."""
        self._over = threading.Event()
        self._changed = threading.Condition()  # guards `count`
        self._producer = Producer(servers, acks="all", on_delivery=self._delivered)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _delivered(self, one: Delivery) -> None:
        with self._changed:
            self.count += one.count
            self.last_s = time.monotonic()
            self._changed.notify_all()

    def _write(self) -> None:
        while not self._over.wait(PAUSE_S):
            value = b"%d" % len(self.sent)
            self.sent.append(self._producer.send(TOPIC.topic, value, partition=TOPIC.partition))

    def until(self, count: int) -> None:
        """Raises: CommandError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count >= count, PATIENCE_S):
                raise CommandError(f"nothing was acknowledged in {PATIENCE_S:g} s")

    def end(self) -> None:
        """Wait for requests in flight."""
        self._over.set()
        self._thread.join()
        self._producer.close()

    def acknowledged(self) -> dict[int, int]:
        """The offset of each acknowledged number."""
        return {
            number: future.result().offset
            for number, future in enumerate(self.sent)
            if future.exception() is None
        }


class _Watch:
    """Watches the leader, the ISR and the replicas' progress."""

    def __init__(self, servers: str) -> None:
        self.moments: list[Moment] = []
        self.events: list[tuple[float, str]] = []
        self._begun_s = time.monotonic()
        self._over = threading.Event()
        self._servers = servers
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print a line with the time."""
        at_s = time.monotonic() - self._begun_s
        self.events.append((at_s, text))
        say(f"  {at_s:5.1f} s  {text}")

    def _look(self) -> None:
        patience = Options(connect_timeout_ms=500, request_timeout_ms=500, api_timeout_ms=500)
        with Cluster(self._servers, patience) as cluster:
            while not self._over.wait(LOOK_S):
                with suppress(KafkalogError):
                    self.moments.append(self._moment(cluster))

    def _moment(self, cluster: Cluster) -> Moment:
        cluster.refresh_once([TOPIC.topic])
        info = cluster.topic(TOPIC.topic).partitions[TOPIC.partition]
        there = [ReplicaOf(*TOPIC, node) for node in info.replicas if node in cluster.nodes]
        found = copy_offsets(cluster, there, timeout_ms=LOOK_MS).done
        shown = find_offsets(cluster, {TOPIC: LATEST}, timeout_ms=LOOK_MS).done
        return Moment(
            time.monotonic() - self._begun_s, info.leader, info.isr,
            {one.node: end for one, end in found.items()},
            shown[TOPIC].offset if TOPIC in shown else -1,
        )  # fmt: skip

    def until(self, condition: Callable[[Moment], bool], what: str) -> Moment:
        """The first time from now on at which this is so.  Raises: CommandError."""
        seen, end_s = len(self.moments), time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            for moment in self.moments[seen:]:
                if condition(moment):
                    return moment
            time.sleep(LOOK_S)
        raise CommandError(f"not in {PATIENCE_S:g} s: {what}")

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def _compare(servers: str, load: _Load) -> bool:
    """True if anything is lost or duplicated: compares all records with the acknowledged ones."""
    stored = load.acknowledged()
    values: dict[int, int] = {}
    with Consumer(servers) as consumer:
        consumer.assign([TOPIC])
        consumer.seek_to_beginning(TOPIC)
        while max(values, default=-1) < max(stored.values()):
            values |= {record.offset: int(record.value or b"-1") for record in consumer.poll(1000)}
    lost = sum(values.get(offset) != number for number, offset in stored.items())
    twice = len(values) - len(set(values.values()))
    ordered = list(values.values()) == sorted(values.values())
    say(f"{len(stored):,} records were acknowledged: {lost} are lost, {twice} are there twice, "
        f"{'all are' if ordered else 'they are NOT'} in order")  # fmt: skip
    return bool(lost or twice or not ordered)
