"""A simulated quorum: its nodes, the network between them, and the faults that a seed draws."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.raft.log import version_of
from kafkalog.raft.messages import (
    AddRaftVoterRequest,
    Append,
    ChangeVersion,
    RemoveRaftVoterRequest,
    Request,
    Resign,
    Response,
    Send,
    ShutDown,
)
from kafkalog.raft.replicas import (
    NO_DIRECTORY,
    ReplicaKey,
    Voter,
    find,
    is_voter,
    majority,
    voters_of,
    without_voter,
)
from kafkalog.raft.state import Options
from kafkalog.simulate.quorum.checks import Checks
from kafkalog.simulate.quorum.disk import Disk
from kafkalog.simulate.quorum.node import Node, Token
from kafkalog.simulate.world import Violated, World

__all__ = ["Cluster", "Setup", "drawn_setup"]

ELECTED = 50
"""A majority of the voters elects a leader within this many election timeouts."""
HOST = (("CONTROLLER", "localhost", 9093),)
FAULTS: Mapping[str, int] = {
    "kill": 4, "power_cut": 4, "power_cut_of_all": 1, "pause": 4, "cut": 6, "isolate": 4, "jump": 2,
    "slow_disk": 2, "snapshot": 6, "resign": 2, "shut_down": 1, "add_voter": 4, "remove_voter": 4,
    "upgrade": 2, "wipe": 2,
}  # fmt: skip
"""How often each kind of fault is drawn, relative to the others."""


class Setup(NamedTuple):
    """The settings of a run."""

    voters: int = 3
    observers: int = 1
    version: int = 1
    delay_ms: float = 5.0
    slow_share: float = 0.05
    lost_share: float = 0.02
    twice_share: float = 0.02
    disk_ms: float = 2.0
    fault_ms: float = 400.0
    """The mean time between two faults."""
    append_ms: float = 40.0
    election_ms: float = 200.0
    auto_join: bool = True
    faults: Mapping[str, int] = FAULTS


def drawn_setup(dice: random.Random) -> Setup:
    """The settings of a seed."""
    return Setup(
        voters=dice.choice((3, 3, 3, 4, 5)),
        observers=dice.choice((0, 1, 2)),
        version=dice.choice((0, 1, 1)),
        delay_ms=dice.choice((1.0, 5.0, 30.0)),
        slow_share=dice.choice((0.0, 0.05, 0.2)),
        lost_share=dice.choice((0.0, 0.02, 0.1)),
        twice_share=dice.choice((0.0, 0.05)),
        disk_ms=dice.choice((0.5, 5.0, 30.0)),
        fault_ms=dice.choice((100.0, 300.0, 1000.0)),
        append_ms=dice.choice((20.0, 60.0)),
        auto_join=dice.random() < 0.7,
    )


class Cluster:
    """The nodes, and all that happens to them."""

    def __init__(self, seed: int, setup: Setup) -> None:
        """Made, not started."""
        self.world = World(seed)
        self.setup = setup
        self.checks = Checks()
        self.cuts: set[tuple[int, int]] = set()
        """Links from one node to another that carry nothing."""
        self.healed = False
        self._directories = random.Random(f"{seed}-directories")
        self._next_value = 0
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
            node = Node(number, self.world, self, self.checks, disk, options)
            node.disk_ms = setup.disk_ms
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
        """A request; a node that is down refuses it, or is silent."""
        target = self.nodes[effect.node_id]
        token = Token(node.id, node.life, effect.number, effect.message)

        def arrives() -> None:
            if target.alive:
                target.deliver(Request(token, effect.message))
            elif self.world.chance(0.5):
                self.answer(target, token, None)

        self._travels(node.id, target.id, arrives)

    def answer(self, node: Node, token: Any, message: Any) -> None:
        """An answer, to the life of the node that asked."""
        if not isinstance(token, Token):
            return
        asker = self.nodes[token.node_id]

        def arrives() -> None:
            if asker.life == token.life:
                asker.deliver(Response(token.number, message))

        self._travels(node.id, asker.id, arrives)

    # ---- clients -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, the clients and the faults."""
        for node in self.nodes:
            node.start()
        self.world.later(self.setup.append_ms, self._append)
        self.world.later(self.setup.fault_ms, self._fault)

    def _append(self) -> None:
        for node in self.nodes:
            if node.leads and node.state is not None and self.world.chance(0.8):
                self._next_value += 1
                value = self._next_value
                node.deliver(Append(value, 1 + value % 3, value, node.state.epoch))
        if not self.healed:
            self.world.later(self.world.rng.uniform(0, 2) * self.setup.append_ms, self._append)

    # ---- faults --------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.healed:
            return
        rng = self.world.rng
        node = rng.choice(self.nodes)
        kinds, weights = zip(*self.setup.faults.items(), strict=True)
        kind = rng.choices(kinds, weights)[0]
        getattr(self, f"_{kind}")(node)
        self.world.later(rng.expovariate(1 / self.setup.fault_ms), self._fault)

    def _later(self, event: Callable[[], None]) -> None:
        self.world.later(self.world.rng.uniform(0.1, 6) * self.setup.election_ms, event)

    def _restart(self, node: Node) -> None:
        if not node.alive:
            node.start()

    def _kill(self, node: Node) -> None:
        if node.alive:
            node.stop()
            self._later(lambda: self._restart(node))

    def _power_cut(self, node: Node) -> None:
        if node.alive:
            node.stop(power=True)
            self._later(lambda: self._restart(node))

    def _power_cut_of_all(self, _: Node) -> None:
        for node in self.nodes:
            self._power_cut(node)

    def _pause(self, node: Node) -> None:
        node.note("is paused")
        ms = self.world.rng.uniform(0.1, 6) * self.setup.election_ms
        node.paused_until_ms = self.world.now_ms + ms

    def _cut(self, node: Node) -> None:
        """One link, in one direction."""
        other = self.world.rng.choice(self.nodes)
        self._cut_links({(node.id, other.id)})

    def _isolate(self, node: Node) -> None:
        """Everything to a node, from it, or both."""
        others = [one.id for one in self.nodes if one is not node]
        inward = {(one, node.id) for one in others}
        outward = {(node.id, one) for one in others}
        self._cut_links(self.world.rng.choice((inward, outward, inward | outward)))

    def _split(self, _: Node) -> None:
        """Two groups of nodes that do not reach each other."""
        rng = self.world.rng
        group = set(rng.sample([one.id for one in self.nodes], len(self.nodes) // 2))
        rest = [one.id for one in self.nodes if one.id not in group]
        one_way = {(one, other) for one in group for other in rest}
        self._cut_links(one_way | {(other, one) for one, other in one_way})

    def _cut_links(self, links: set[tuple[int, int]]) -> None:
        self.world.note("cut:", sorted(links))
        self.cuts |= links
        self._later(lambda: self.cuts.difference_update(links))

    def _jump(self, node: Node) -> None:
        ms = self.world.rng.uniform(-2, 6) * self.setup.election_ms
        node.note("its clock jumps by", round(ms))
        node.jump(ms)

    def _slow_disk(self, node: Node) -> None:
        node.disk_ms = self.setup.disk_ms * self.world.rng.choice((1, 10, 50))

    def _snapshot(self, node: Node) -> None:
        node.take_snapshot()

    def _resign(self, node: Node) -> None:
        if node.leads and node.state is not None:
            node.deliver(Resign(node.state.epoch))

    def _shut_down(self, node: Node) -> None:
        if node.alive:
            node.note("shuts down")
            node.deliver(ShutDown())
            self._later(lambda: self._kill(node))

    # ---- changes of the voters -----------------------------------------------------------------

    def _leaders(self) -> list[Node]:
        return [one for one in self.nodes if one.leads]

    def _add_voter(self, node: Node) -> None:
        """An administrator asks every leader."""
        voter = node.options.itself
        assert voter is not None
        for leader in self._leaders():
            leader.note("is asked to add", node.id)
            leader.deliver(Request("admin", AddRaftVoterRequest(voter)))

    def _remove_voter(self, node: Node) -> None:
        """Unless too many of those left have lost their disks."""
        lives = {one.key for one in self.nodes}
        for leader in self._leaders():
            assert leader.state is not None
            one = find(leader.state.voters, node.id)
            left = without_voter(leader.state.voters, node.id)
            if one is None or len(left) < 2:
                continue
            living = sum(is_voter((voter,), key) for voter in left for key in lives)
            if living >= majority(left):
                leader.note("is asked to remove", node.id)
                leader.deliver(Request("admin", RemoveRaftVoterRequest(one.key)))

    def _upgrade(self, _: Node) -> None:
        for leader in self._leaders():
            leader.deliver(ChangeVersion("admin", 1))

    def _wipe(self, node: Node) -> None:
        """The disk is lost; the node comes back with another."""
        versions = [version_of(one.state.log) for one in self.nodes if one.state is not None]
        if min(versions) < 1 or not self.checks.may_lose(node):
            return
        node.note("loses its disk")
        node.stop(power=True)
        self.checks.lost[node.key] = node.disk
        node.wipe(self._directory())
        self._later(lambda: self._restart(node))

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
            self._restart(node)
        until_ms = self.world.now_ms + ms
        self._rest(until_ms)
        self._append_once()
        self._rest(until_ms)
        self.checks.settled()

    def outlive(self) -> None:
        """After `settle`: the leader stays down, with as many voters as the quorum can spare.

        Raises: Violated: the others, which all reach each other, elect no other leader.
        """
        (leader,) = self._leaders()
        assert leader.state is not None
        voters = leader.state.voters
        living = [one for one in self.nodes if is_voter(voters, one.key)]
        living.sort(key=lambda one: (one is not leader, one.id))
        down = living[: len(living) - majority(voters)]
        for node in down:
            node.stop()
        until_ms = self.world.now_ms + ELECTED * self.setup.election_ms
        while down and not self._leaders():
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
