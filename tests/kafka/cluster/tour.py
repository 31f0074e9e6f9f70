"""Acts of operators and accidents in a cluster of both kinds while clients use it.

Each deed ends when everything is whole again and goes on.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog.cli import main
from kafkalog.coordinator.partitions import partition_for
from kafkalog.types import TopicPartition
from tests.faults.workloads import queue
from tests.kafka.cluster.clients import COORDINATED, TOPICS, Clients
from tests.kafka.cluster.members import (
    INTERNAL,
    KAFKA,
    OURS,
    PATIENCE_S,
    Members,
    State,
    until,
)
from tests.support import apache
from tests.support.waiting import wait_for

LOOKED_AT = "org.apache.kafka.tools.ReplicaVerificationTool"
DESCRIBED = "org.apache.kafka.tools.TopicCommand"


class Done(NamedTuple):
    """A deed that is completed."""

    deed: str
    to: str
    """The kind of the node that it was done to; empty if it was done to topics."""
    reigns: str
    """The kind of the controller when it began; empty if it was no node."""


class Tour:
    """Deeds on a cluster of three nodes, some of either kind."""

    def __init__(self, nodes: Members, numbers: Sequence[int], rng: random.Random, pace: float = 1):
        """Create topics, of which each node leads some, and start clients; `numbers`: the nodes."""
        self.nodes, self.rng = nodes, rng
        self.log: list[str] = []
        self.done: set[Done] = set()
        self._names = itertools.count()
        self._begun = time.monotonic()
        for topic, count in TOPICS.items():
            policy = {"cleanup_policy": "compact"} if topic in INTERNAL else {}
            places = [[*numbers[n % 3 :], *numbers[: n % 3]] for n in range(count)]
            nodes.create(topic, *places, **policy)
        nodes.in_sync()
        # The first node coordinates one of each, the second the other.
        for names in COORDINATED:
            assert {partition_for(name, 2) for name in names} == {0, 1}
        self.clients = Clients(nodes, pace)

    def note(self, line: str) -> None:
        self.log.append(f"{time.monotonic() - self._begun:7.2f} s  {line}")

    @contextmanager
    def deed(self, what: str, number: int | None = None, how: str = "") -> Iterator[None]:
        """Run a deed on a node or on topics, and wait until everything is whole."""
        nodes, reigns, start = self.nodes.nodes, self.nodes.controller(), time.monotonic()
        to = "" if number is None else nodes[number].kind
        done = Done(what, to, nodes[reigns].kind if reigns in nodes else "")
        self.note(f"{what} {number or ''} {to} {how}; {reigns} reigns, {done.reigns}")
        yield
        self.whole()
        self.done.add(done)
        self.clients.groups.disputed.append((start, time.monotonic()))

    def whole(self) -> None:
        self.nodes.all_known()
        self.nodes.in_sync()
        self.nodes.first_lead()
        self.clients.go_on()
        self.note("whole")

    # ---- nodes -------------------------------------------------------------------------------

    def led_by_others(self, number: int) -> None:
        """Wait until a dead node is known to be dead, leads nothing, and is in no ISR; all goes on.

        But partitions for which no other node was in sync just then, as on a machine that stalls,
        wait for it.
        """
        self.nodes.all_known()
        found: list[State] = []

        def led() -> bool:
            found[:] = [self.nodes.state(topic, n) for topic, c in TOPICS.items() for n in range(c)]
            return all(
                one.leader == -1 if not {*one.isr} - {number}
                else one.leader not in (number, -1) and number not in one.isr
                for one in found
            )  # fmt: skip

        until(led, f"others than {number} lead")
        if all(one.leader != -1 for one in found):
            self.clients.go_on()

    def ends(self, number: int, kind: str = "") -> None:
        """End in order; then it comes back, as this kind or as what it was."""
        with self.deed("end in order", number, kind and f"comes back {kind}"):
            self.nodes.nodes[number].stop()
            self.led_by_others(number)
            self.nodes.begin(number, kind)

    def dies(self, number: int) -> None:
        with self.deed("kill -9", number):
            self.nodes.nodes[number].kill()
            self.led_by_others(number)
            self.nodes.begin(number)

    def stands_still(self, number: int) -> None:
        """Its leaders remove it from the ISRs, and add it again."""
        with self.deed("stand still", number):

            def dropped() -> bool:
                states = [self.nodes.state(queue.TOPIC, n) for n in range(TOPICS[queue.TOPIC])]
                return all(number not in one.isr for one in states if one.leader != number)

            with self.nodes.nodes[number].stands_still():
                until(dropped, "the ISRs shrink")

    # ---- topics ------------------------------------------------------------------------------

    def topic(self, *replicas: Sequence[int], **settings: str) -> str:
        name = f"tour{next(self._names)}"
        self.nodes.create(name, *replicas, **settings)
        return name

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        with kafkalog.Producer(self.nodes.bootstrap, acks="all") as producer:
            for value in values:
                producer.send(topic, value, partition=partition)

    def read(self, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
        found: list[bytes | None] = []
        with kafkalog.Consumer(self.nodes.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            wait_for(
                lambda: found.extend(r.value for r in consumer.poll(100)) or len(found) >= count,
                "it reads all", PATIENCE_S,
            )  # fmt: skip
        return found

    def same(self, topic: str) -> None:
        """Wait until the replicas are equal, and are only where they should be."""
        (info,) = [one for one in self.nodes.topics() if one.name == topic]
        last: list[str] = []

        def same() -> bool:
            last[:] = self.nodes.differences([info])
            return not last

        try:
            until(same, "copies are equal")
        except AssertionError as late:
            raise AssertionError(f"{late}: {last}") from None

    def remove(self, topic: str) -> None:
        """Delete it; no file is left."""

        def gone() -> bool:
            self.nodes.admin.delete_topics([topic])
            return topic not in self.nodes.admin.list_topics()

        self.nodes.try_until(gone, "it is deleted")
        folders = [node.data for node in self.nodes.nodes.values()]
        until(lambda: not any([*one.glob(f"{topic}-*")] for one in folders), "no file is left")

    def topic_lives(self) -> None:
        """Created, enlarged, configured, moved, deleted; each node leads some of it."""
        a, b, c = self.numbers()
        admin, nodes = self.nodes.admin, self.nodes
        with self.deed("make, enlarge, set, move and delete a topic"):
            topic = self.topic([a, b, c], [b, c, a])

            def enlarged() -> bool:
                known = {one.name: len(one.partitions) for one in nodes.topics()}
                if known[topic] < 3:
                    admin.create_partitions({topic: 3}, {topic: [[c, a, b]]})
                return known[topic] == 3

            nodes.try_until(enlarged, "it is enlarged")
            nodes.first_lead([topic])
            for n in range(3):
                self.produce(topic, b"1", b"2", partition=n)
            change = ("topic", topic), {"max.message.bytes": "3000"}
            nodes.try_until(
                lambda: admin.alter_configs(dict([change])).check() or True, "it is set"
            )
            for n in range(3):
                until(lambda n=n: self.too_large(topic, n), "it is obeyed")
            self.move({(topic, 0): [b, c], (topic, 1): [c, a], (topic, 2): [a, b]})
            for n in range(3):
                self.produce(topic, b"3", partition=n)
                assert self.read(topic, 3, n)[:2] == [b"1", b"2"]
            self.same(topic)
            self.remove(topic)

    def too_large(self, topic: str, partition: int) -> bool:
        try:
            self.produce(topic, b"x" * 4000, partition=partition)
        except kafkalog.errors.MessageTooLarge:
            return True
        return False

    def move(self, places: dict[tuple[str, int], Sequence[int]]) -> None:
        """Move partitions to these nodes; the first of each leads."""

        def there() -> bool:
            moving = self.nodes.admin.list_partition_reassignments()
            states = {where: self.nodes.state(*where) for where in places}
            left = {
                where: nodes for where, nodes in places.items()
                if where not in moving and {*states[where].isr} != {*nodes}
            }  # fmt: skip
            if left:
                self.nodes.admin.alter_partition_reassignments(left)
            return not left and not moving

        self.nodes.try_until(there, f"moved: {places}")
        self.nodes.in_sync()
        self.nodes.first_lead({topic for topic, _ in places})

    def moves(self) -> None:
        """Each node gives up a partition of the clients, another leads it, and it comes back."""
        a, b, c = self.numbers()
        rows = [[b, c], [c, a], [a, b]]
        with self.deed("move the queue and back"):
            self.move({(queue.TOPIC, n): row for n, row in enumerate(rows)})
            self.clients.go_on()
            self.move({(queue.TOPIC, 0): [a, b, c], (queue.TOPIC, 1): [b, c, a],
                       (queue.TOPIC, 2): [c, a, b]})  # fmt: skip

    def unclean(self, lacks: int, has: int, how: str) -> None:
        """The replica with all records dies, and one that lacks some becomes the leader: these are
        gone from both, and nothing from other topics."""
        nodes = self.nodes
        with self.deed("elect uncleanly", lacks, f"in place of {has}"):
            topic = self.topic([lacks, has], min_insync_replicas="1")
            self.produce(topic, b"both")
            getattr(nodes.nodes[lacks], how)()
            until(lambda: nodes.state(topic).isr == (has,), f"{has} is alone")
            self.produce(topic, b"lost")
            nodes.nodes[has].kill()
            until(lambda: nodes.state(topic).leader == -1, "nobody leads")
            nodes.begin(lacks)
            assert (nodes.state(topic).leader, nodes.state(topic).isr) == (-1, (has,))

            def led() -> bool:
                nodes.admin.elect_leaders([(topic, 0)], kind="unclean")
                return nodes.state(topic).leader == lacks

            nodes.try_until(led, f"{lacks} leads")
            self.produce(topic, b"after")
            nodes.begin(has)
            nodes.in_sync()
            assert self.read(topic, 2) == [b"both", b"after"]
            self.same(topic)
            self.remove(topic)

    # ---- drawn deeds -------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        return sorted(node.number for node in self.nodes.living)

    def drawn(self) -> None:
        """Do any of these, to any node."""
        one, other = self.rng.sample(self.numbers(), 2)
        kind = self.nodes.nodes[one].kind
        deeds: list[Callable[[], None]] = [
            lambda: self.ends(one), lambda: self.ends(one, OURS if kind == KAFKA else KAFKA),
            lambda: self.dies(one), lambda: self.dies(self.nodes.controller()),
            lambda: self.stands_still(one), self.topic_lives, self.moves,
            lambda: self.unclean(one, other, self.rng.choice(("stop", "kill"))),
        ]  # fmt: skip
        self.rng.choice(deeds)()

    # ---- results -----------------------------------------------------------------------------

    def judge(self, by_kafka: bool = True) -> None:
        """End the clients, then the nodes; `by_kafka`: Kafka's tools are run, too.

        Raises: AssertionError, with the anomalies.
        """
        self.nodes.in_sync()
        found = self.clients.end()
        assert not found, "\n".join(found[:20])
        self.nodes.try_until(self._all_ended, "no transaction is open")
        # A lost member's removal is a record, which nodes that had already ended would lack.
        self.nodes.try_until(self._all_left, "no group has a member")
        topics, bootstrap = self.nodes.topics(), self.nodes.bootstrap
        assert main(["cluster", "check", "--bootstrap-server", bootstrap]) == 0
        if by_kafka:
            behind = apache.ask(
                DESCRIBED, "--bootstrap-server", bootstrap, "--describe",
                "--under-replicated-partitions",
            )  # fmt: skip
            assert not behind.strip(), behind
            verified(bootstrap, sum(len(one.partitions) for one in topics))
        until(lambda: not self.nodes.differences(topics), "copies are equal")
        self.nodes.end()
        assert not (differs := self.nodes.differences(topics)), differs
        self.note(f"judged: {self.clients.figures()}")

    def _all_ended(self) -> bool:
        """Coordinators end the clients' open transactions after their timeout."""
        found = self.nodes.admin.list_transactions()
        return bool(found) and not any(
            one.state in ("Ongoing", "PrepareCommit", "PrepareAbort") for one in found
        )

    def _all_left(self) -> bool:
        return {one.state for one in self.nodes.admin.list_groups()} <= {"Empty", "Dead"}

    def keep(self, folder: Path) -> None:
        """Write the deeds and the histories to files for people."""
        (folder / "deeds").write_text("\n".join(self.log) + "\n")
        self.clients.keep(folder)


def verified(bootstrap: str, partitions: int) -> None:
    """kafka-replica-verification, which never ends by itself, finds all replicas equal, up to their
    ends."""
    command = apache.java(
        LOOKED_AT, "--broker-list", bootstrap, "--report-interval-ms", "200",
        folder=apache.jars_with_zookeeper(),
    )  # fmt: skip
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as tool:
        assert tool.stdout is not None
        try:
            for line in tool.stdout:
                said.append(line)
                assert len(said) < 1000 and "checksum" not in line, "".join(said[-20:])
                if "max lag is 0 " in line and f"among {partitions} partitions" in line:
                    return
        finally:
            tool.kill()
    raise AssertionError("".join(said[-20:]))
