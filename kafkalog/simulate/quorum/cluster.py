"""A simulated quorum: its nodes, the network between them, and the faults that a seed draws."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from kafkalog.raft.messages import Append, Request, Response, Send
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey, Voter, is_voter, majority, voters_of
from kafkalog.raft.state import Options
from kafkalog.simulate.quorum.checks import Checks
from kafkalog.simulate.quorum.disk import Disk
from kafkalog.simulate.quorum.faults import Faults
from kafkalog.simulate.quorum.node import Node, Token
from kafkalog.simulate.quorum.setup import Setup
from kafkalog.simulate.world import Violated, World

__all__ = ["Cluster"]

ELECTED = 50
"""A majority of the voters elects a leader within this many election timeouts."""
HOST = (("CONTROLLER", "localhost", 9093),)


class Cluster:
    """The nodes, and all that happens to them."""

    node_class = Node

    def __init__(self, seed: int, setup: Setup, checks: Checks | None = None) -> None:
        """Made, not started."""
        self.world = World(seed)
        self.setup = setup
        self.checks = checks or Checks()
        self.cuts: set[tuple[int, int]] = set()
        """Links from one node to another that carry nothing."""
        self.healed = False
        self._directories = random.Random(f"{seed}-directories")
        self._next_value = 0
        self._faults = Faults(self)
        count = setup.voters + setup.observers
        disks = [self._directory() for _ in range(count)]
        named = [
            Voter(ReplicaKey(number, disks[number] if setup.version else NO_DIRECTORY), HOST)
            for number in range(setup.voters)
        ]
        voters = voters_of(named)
        for number, directory_id in enumerate(disks):
            options = Options(
                election_timeout_ms=setup.election_ms,
                fetch_timeout_ms=2 * setup.election_ms,
                request_timeout_ms=2 * setup.election_ms,
                backoff_ms=10,
                fetch_wait_ms=setup.election_ms / 2,
                bootstrap=tuple(range(setup.voters)),
                auto_join=setup.auto_join,
                itself=Voter(ReplicaKey(number, directory_id), HOST),
            )
            own = voters if number < setup.voters or not setup.version else ()
            disk = Disk(directory_id, setup.version, own)
            node = self.node_class(number, self.world, self, self.checks, disk, options)
            node.disk_ms, node.batches = setup.disk_ms, setup.batches
            self.checks.nodes.append(node)

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return self.checks.nodes

    def _directory(self) -> uuid.UUID:
        return uuid.UUID(int=self._directories.getrandbits(128))

    # ---- the network ---------------------------------------------------------------------------

    def _travels(self, start: int, end: int, arrives: Callable[[], None]) -> None:
        """Carry a message: late, out of order, twice, or never."""
        world, setup = self.world, self.setup
        if (start, end) in self.cuts or (not self.healed and world.chance(setup.lost_share)):
            return
        for _ in range(1 + (not self.healed and world.chance(setup.twice_share))):
            ms = world.rng.uniform(0.2, 2) * setup.delay_ms
            if not self.healed and world.chance(setup.slow_share):
                ms *= world.rng.choice((5, 20, 100))
            world.later(ms, lambda: None if (start, end) in self.cuts else arrives())

    def send(self, node: Node, effect: Send) -> None:
        """A request; a node that is down refuses it, which its machine may tell, or is silent."""
        target = self.nodes[effect.node_id]
        token = Token(node.id, node.life, effect.number, effect.message)

        def arrives() -> None:
            if target.alive:
                target.deliver(Request(token, effect.message))
            elif self.world.chance(0.5):
                self.answer(target, token, None, refused=self.world.chance(0.5))

        self._travels(node.id, target.id, arrives)

    def answer(self, node: Node, token: Any, message: Any, refused: bool = False) -> None:
        """An answer, to the life of the node that asked."""
        if not isinstance(token, Token):
            return
        asker = self.nodes[token.node_id]

        def arrives() -> None:
            if asker.life == token.life:
                asker.deliver(Response(token.number, message, refused))

        self._travels(node.id, asker.id, arrives)

    # ---- clients -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, the clients and the faults."""
        for node in self.nodes:
            node.start()
        self.world.later(self.setup.append_ms, self._append)
        self._faults.start()

    def _append(self) -> None:
        for node in self.nodes:
            if node.leads and node.state is not None and self.world.chance(0.8):
                self._next_value += 1
                value = self._next_value
                node.deliver(Append(value, 1 + value % 3, value, node.state.epoch))
        if not self.healed:
            self.world.later(self.world.rng.uniform(0, 2) * self.setup.append_ms, self._append)

    def reached(self, node: Node, moment: str) -> None:
        """A node is at a moment at which a fault may do the most harm."""
        self._faults.reached(node, moment)

    def new_disk(self, node: Node) -> None:
        """A node gets another disk."""
        node.wipe(self._directory())

    # ---- the end -------------------------------------------------------------------------------

    def settle(self, ms: float = 60_000.0) -> None:
        """Heal everything, and wait until the quorum is at rest and commits another record.

        Raises: Violated.
        """
        self.healed = True
        self.world.note("healed")
        self.cuts.clear()
        for node in self.nodes:
            node.disk_ms = self.setup.disk_ms
            node.paused_until_ms = min(node.paused_until_ms, self.world.now_ms)
            if node.state is not None and node.state.stopping and node.alive:
                node.stop()
            if not node.alive:
                node.start()
        until_ms = self.world.now_ms + ms
        self._rest(until_ms)
        self._append_once()
        self._rest(until_ms)
        self.checks.settled()

    def outlive(self) -> None:
        """After `settle`: the leader stays down, with as many voters as the quorum can spare.

        Raises: Violated: the others, which all reach each other, elect no other leader.
        """
        (leader,) = (one for one in self.nodes if one.leads)
        assert leader.state is not None
        voters = leader.state.voters
        living = [one for one in self.nodes if is_voter(voters, one.key)]
        living.sort(key=lambda one: (one is not leader, one.id))
        down = living[: len(living) - majority(voters)]
        for node in down:
            node.stop()
        until_ms = self.world.now_ms + ELECTED * self.setup.election_ms
        while down and not any(one.leads for one in self.nodes):
            if self.world.now_ms >= until_ms:
                raise Violated(f"outlives: nothing leads without {[one.id for one in down]}")
            self.world.run(self.world.now_ms + 100)

    def _append_once(self) -> None:
        before = self.checks.end
        until_ms = self.world.now_ms + 10_000
        while self.checks.end == before and self.world.now_ms < until_ms:
            self._append()
            self.world.run(self.world.now_ms + 500)

    def _rest(self, until_ms: float) -> None:
        while found := self.checks.unsettled():
            if self.world.now_ms >= until_ms:
                raise Violated(f"settles: {found}")
            self.world.run(self.world.now_ms + 100)
