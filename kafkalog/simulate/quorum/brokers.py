"""Brokers of a simulated cluster, which register with its controllers, send heartbeats and propose
ISRs.

Real: a broker's life (cluster/quorum/life) and the roles that the metadata give it
(cluster/quorum/roles).  Their records are the committed ones of a controller that they reach; their
data are not simulated: a follower is in sync as long as its broker lives.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafkalog.cluster.quorum import life as lives
from kafkalog.cluster.quorum.life import Life, Registration, Stage
from kafkalog.cluster.quorum.roles import changed_roles
from kafkalog.kraft.records import decode
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage, Partition, empty_image
from kafkalog.metadata.levels import LEVEL, LEVEL_MIN
from kafkalog.replication.roles import Drop, Effect
from kafkalog.simulate.quorum.metadata import CLUSTER_ID, ControllerNode
from kafkalog.simulate.world import Violated, World
from kafkalog.types import TopicPartition
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.wire.tables.later.quorum import BROKER_HEARTBEAT, BROKER_REGISTRATION

__all__ = ["FIRST_BROKER", "Broker"]

FIRST_BROKER = 100
INTERVAL_MS = 200
"""Between two heartbeats."""
BACK_MS = 500
"""A broker that left in order comes back after this long."""
ANSWER_MS = 400
"""A registration or heartbeat without an answer is given up after this long."""


class Broker:
    """A broker on its machine."""

    def __init__(
        self, number: int, world: World, controllers: Callable[[], list[ControllerNode]],
        reaches: Callable[[int, int], bool],
    ) -> None:  # fmt: skip
        """Not started yet.  `controllers`: those that are alive; `reaches`: True if a message from
        one node to another arrives."""
        self.id, self.world = number, world
        self._controllers, self._reaches = controllers, reaches
        self.life = 0
        self.paused_until_ms = 0.0
        self.alive = False
        self.now = Life()
        self.directory_id = uuid.UUID(int=world.rng.getrandbits(128))
        self.replay = Replay(empty_image(CLUSTER_ID, number))
        self.roles: dict[TopicPartition, Effect] = {}
        self._taken = 0
        self._target: ControllerNode | None = None
        self._waits_until_ms = 0.0
        """A registration or heartbeat is in flight until then: there is one at a time."""

    @property
    def image(self) -> MetadataImage:
        """The metadata that it has read."""
        return self.replay.image

    @property
    def serves(self) -> bool:
        """True if it may have replicas in sync."""
        return self.alive and self.now.stage in (Stage.SERVING, Stage.LEAVING)

    def is_heard_by(self, node: ControllerNode) -> bool:
        """True if this node's controller answered its last request."""
        return self._target is node and not self.now.failures

    # ---- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process, which reads the metadata from the beginning."""
        self.life += 1
        self.alive, self.paused_until_ms, self.now = True, 0.0, Life()
        self._waits_until_ms = 0.0
        self.replay, self._taken = Replay(empty_image(CLUSTER_ID, self.id)), 0
        self.roles = {}
        incarnation_id = uuid.UUID(int=self.world.rng.getrandbits(128))
        self._registration = Registration(
            self.id, CLUSTER_ID, incarnation_id, [("PLAINTEXT", f"host{self.id}", 9092, 0)],
            [(METADATA_VERSION, LEVEL_MIN, LEVEL)], None, self.directory_id,
        )  # fmt: skip
        self.note("starts")
        self._turn()

    def stop(self) -> None:
        """The process is killed, or ended."""
        self.life += 1
        self.alive = False
        self.note("ends")

    def back(self) -> None:
        """Start, unless it has been started."""
        if not self.alive:
            self.start()

    def leave(self) -> None:
        """It wants to stop in order."""
        if self.alive:
            self.now = lives.leaving(self.now)

    def note(self, *words: object) -> None:
        """Note what happened."""
        self.world.note(f"broker {self.id}:", *words)

    def _turn(self) -> None:
        """Read, and send what is due."""
        self._read()
        if self.now.stage is Stage.LEFT:
            self.stop()
            self.world.later(BACK_MS, self.back)
            return
        if self.world.now_ms >= self._waits_until_ms:
            self._exchange()
        if self.now.stage is not Stage.REGISTERING:
            self._propose()
        self.world.later(max(5, lives.pause_ms(self.now, INTERVAL_MS)), self._turn, self)

    def _exchange(self) -> None:
        """Register, or send a heartbeat."""
        self._waits_until_ms = self.world.now_ms + ANSWER_MS
        if self.now.stage is Stage.REGISTERING:
            body = lives.registration_body(self._registration)
            self._ask(BROKER_REGISTRATION, body, self._registered)
        else:
            body = lives.heartbeat_body(self.now, self.id, self.image.offset)
            self._ask(BROKER_HEARTBEAT, body, self._beaten)

    def _registered(self, answer: Any) -> None:
        if self.now.stage is Stage.REGISTERING:
            self.now = lives.registered(self.now, answer.error_code, answer.broker_epoch)
            if self.now.refused:
                raise Violated(f"registers: broker {self.id} is refused: {self.now.refused}")

    def _beaten(self, answer: Any) -> None:
        before = self.now.stage
        self.now = lives.heartbeat_answered(self.now, answer)
        if self.now.caught_up and self.image.offset >= self.now.epoch:
            self.now = lives.ready(self.now)
        if self.now.stage is not before:
            self.note(self.now.stage.value)

    # ---- requests ------------------------------------------------------------------------------

    def _ask(self, api: Api, body: dict[str, Any], took: Callable[[Any], None]) -> None:
        """Ask the controller that answered last, or else any."""
        reached = [one for one in self._controllers() if self._reaches(self.id, one.id)]
        target = self._target if self._target in reached else None
        if target is None and reached:
            target = self._target = self.world.rng.choice(reached)
        if target is None:
            self.now, self._waits_until_ms = lives.failed(self.now, "no controller"), 0.0
            return
        node, life, epoch = target, self.life, self.now.epoch
        node_life = node.life

        def answered(found: Any) -> None:
            def arrives() -> None:
                if self.life != life or not self._reaches(node.id, self.id):
                    return
                if api is not ALTER_PARTITION:
                    self._waits_until_ms = 0.0
                if found is None or found.error_code == ErrorCode.NOT_CONTROLLER:
                    self._target = None
                    self.now = lives.failed(self.now, "not the controller")
                elif self.now.epoch == epoch:
                    took(found)

            self.world.later(self.world.rng.uniform(1, 20), arrives)

        def arrived() -> None:
            if node.alive and node.life == node_life and self._reaches(self.id, node.id):
                node.ask(api, body, answered)
            elif self._target is node:
                self._target = None
                if self.life == life and api is not ALTER_PARTITION:
                    self.now, self._waits_until_ms = lives.failed(self.now, "refused"), 0.0

        self.world.later(self.world.rng.uniform(1, 20), arrived)

    def _propose(self) -> None:
        """The ISRs of what it leads: the replicas whose brokers live."""
        for topic, one in self.image.partitions():
            if one.leader != self.id or not self.serves or self.life_of(self.id) != self.now.epoch:
                continue
            wanted = [each for each in one.replicas if self.in_sync(each)]
            if sorted(wanted) != sorted(one.isr) and self.id in wanted:
                self._ask(ALTER_PARTITION, self._proposal(topic.id, one, wanted), lambda _: None)

    def life_of(self, broker: int) -> int:
        """The epoch of a broker's registration; -1: it has none."""
        found = self.image.brokers.get(broker)
        return -1 if found is None else found.epoch

    in_sync: Callable[[int], bool]
    """True if a broker has everything that this one has."""

    def _proposal(self, topic_id: uuid.UUID, one: Partition, wanted: list[int]) -> dict[str, Any]:
        row = {
            "partition_index": one.partition, "leader_epoch": one.leader_epoch,
            "leader_recovery_state": one.leader_recovery_state,
            "partition_epoch": one.partition_epoch,
            "new_isr_with_epochs": [
                {"broker_id": each, "broker_epoch": self.life_of(each)} for each in wanted
            ],
        }  # fmt: skip
        return {
            "broker_id": self.id, "broker_epoch": self.now.epoch,
            "topics": [{"topic_id": topic_id, "partitions": [row]}],
        }  # fmt: skip

    # ---- the metadata --------------------------------------------------------------------------

    def _read(self) -> None:
        """Take over committed records of a controller that it reaches, in batches."""
        reached = [one for one in self._controllers() if self._reaches(one.id, self.id)]
        if not reached:
            return
        values = self.world.rng.choice(reached).values
        for found in values[self._taken :]:
            self._taken += 1
            before = self.image
            for value in found.values:
                self.replay.feed(decode(value))
            self.replay.settle(found.offset + len(found.values) - 1, found.epoch, 0)
            for role in changed_roles(self.replay.change(before)):
                self._take_role(role)

    def _take_role(self, role: Effect) -> None:
        if isinstance(role, Drop):
            self.roles.pop(role.partition, None)
            return
        known = self.roles.get(role.partition)
        self.roles[role.partition] = role
        if known is None or isinstance(known, Drop):
            return
        old, new = known.held.state.leader_epoch, role.held.state.leader_epoch
        if known.held.topic_id == role.held.topic_id and new < old:
            raise Violated(f"epochs: broker {self.id}: {role.partition} from {old} to {new}")
