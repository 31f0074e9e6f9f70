"""The faults of a simulated quorum: drawn ones, and those at the worst moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kafkalog.raft.log import version_of
from kafkalog.raft.messages import (
    AddRaftVoterRequest,
    ChangeVersion,
    RemoveRaftVoterRequest,
    Request,
    Resign,
    ShutDown,
)
from kafkalog.raft.replicas import find, is_voter, majority, without_voter
from kafkalog.simulate.quorum.checks import Checks
from kafkalog.simulate.quorum.node import Node
from kafkalog.simulate.quorum.setup import Setup
from kafkalog.simulate.world import World

__all__ = ["Faults"]


class Scene(Protocol):
    """The cluster."""

    world: World
    setup: Setup
    checks: Checks
    cuts: set[tuple[int, int]]
    healed: bool

    def new_disk(self, node: Node) -> None:
        """A node gets another disk."""


class Faults:
    """Everything that goes wrong until the cluster is healed."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._world, self._setup = scene, scene.world, scene.setup

    @property
    def _nodes(self) -> list[Node]:
        return self._scene.checks.nodes

    def start(self) -> None:
        """Let faults come, one after another."""
        if not self._scene.healed:
            self._world.later(self._world.rng.expovariate(1 / self._setup.fault_ms), self._next)

    def _next(self) -> None:
        if not self._scene.healed:
            self._draw(self._setup.faults, self._world.rng.choice(self._nodes))
            self.start()

    def _draw(self, faults: Mapping[str, int], node: Node) -> None:
        kinds, weights = zip(*faults.items(), strict=True)
        getattr(self, f"_{self._world.rng.choices(kinds, weights)[0]}")(node)

    def reached(self, node: Node, moment: str) -> None:
        """A node is at one of the moments of Setup.moments: a fault comes at once, or a few
        messages later."""
        setup, world = self._setup, self._world
        faults = setup.moments.get(moment)
        if self._scene.healed or not faults or not world.chance(setup.shares.get(moment, 0)):
            return
        late_ms = world.rng.choice((0.0, world.rng.uniform(0, 3) * setup.delay_ms))

        def now() -> None:
            if not self._scene.healed:
                self._draw(faults, node)

        world.later(late_ms, now)

    def _later(self, event: Callable[[], None], least: float = 0.1, most: float = 6) -> None:
        ms = self._world.rng.uniform(least, most) * self._setup.election_ms
        self._world.later(ms, event)

    def _leaders(self) -> list[Node]:
        """Those that believe that they lead, the newest first."""
        found = [(one.state.epoch, one) for one in self._nodes if one.leads and one.state]
        return [one for _, one in sorted(found, key=lambda pair: -pair[0])]

    # ---- nodes ---------------------------------------------------------------------------------

    def _restart(self, node: Node) -> None:
        if not node.alive:
            node.start()

    def _restart_later(self, node: Node) -> None:
        """Soon, or after others may have noticed."""
        least, most = self._world.rng.choice(((0.02, 0.5), (0.1, 6)))
        self._later(lambda: self._restart(node), least, most)

    def _kill(self, node: Node) -> None:
        if node.alive:
            node.stop()
            self._restart_later(node)

    def _kill_leader(self, _: Node) -> None:
        for leader in self._leaders()[:1]:
            self._kill(leader)

    def _power_cut(self, node: Node) -> None:
        if node.alive:
            node.stop(power=True)
            self._restart_later(node)

    def _power_cut_of_all(self, _: Node) -> None:
        for node in self._nodes:
            self._power_cut(node)

    def _pause(self, node: Node) -> None:
        node.note("is paused")
        ms = self._world.rng.uniform(0.1, 6) * self._setup.election_ms
        node.paused_until_ms = self._world.now_ms + ms

    def _jump(self, node: Node) -> None:
        ms = self._world.rng.uniform(-2, 6) * self._setup.election_ms
        node.note("its clock jumps by", round(ms))
        node.jump(ms)

    def _slow_disk(self, node: Node) -> None:
        node.disk_ms = self._setup.disk_ms * self._world.rng.choice((1, 10, 50))

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

    # ---- links ---------------------------------------------------------------------------------

    def _cut_links(self, links: set[tuple[int, int]], most: float = 6) -> None:
        cuts = self._scene.cuts
        self._world.note("cut:", sorted(links))
        cuts |= links
        self._later(lambda: cuts.difference_update(links), most=most)

    def _cut(self, node: Node) -> None:
        """One link, in one direction."""
        other = self._world.rng.choice(self._nodes)
        self._cut_links({(node.id, other.id)})

    def _around(self, node: Node) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """The links to a node, and those from it."""
        others = [one.id for one in self._nodes if one is not node]
        return {(one, node.id) for one in others}, {(node.id, one) for one in others}

    def _isolate(self, node: Node) -> None:
        """Everything to a node, from it, or both."""
        inward, outward = self._around(node)
        self._cut_links(self._world.rng.choice((inward, outward, inward | outward)))

    def _roll(self, _: Node) -> None:
        """The leader is cut off as those cut off before it come back."""
        self._scene.cuts.clear()
        for leader in self._leaders()[:1]:
            inward, outward = self._around(leader)
            self._cut_links(inward | outward, most=20)

    def _part(self, group: set[int]) -> None:
        """This group and the others do not reach each other."""
        rest = [one.id for one in self._nodes if one.id not in group]
        one_way = {(one, other) for one in group for other in rest}
        self._scene.cuts.clear()
        self._cut_links(one_way | {(other, one) for one, other in one_way}, most=20)

    def _split(self, _: Node) -> None:
        """Two groups."""
        ids = [one.id for one in self._nodes]
        self._part(set(self._world.rng.sample(ids, len(ids) // 2)))

    def _split_leader(self, _: Node) -> None:
        """The leader with the nodes that are no voters, and perhaps a voter, apart from the other
        voters; then it is asked for changes of the voters."""
        for leader in self._leaders()[:1]:
            assert leader.state is not None
            voters = leader.state.voters
            group = {one.id for one in self._nodes if not is_voter(voters, one.key)}
            if self._world.chance(0.5):
                group.add(self._world.rng.choice(self._nodes).id)
            self._part(group | {leader.id})
            self._ask_change(leader)
            self._ask_change(leader)

    # ---- changes of the voters -----------------------------------------------------------------

    def _ask_change(self, _: Node) -> None:
        """The newest leader is asked to add or remove a node."""
        node = self._world.rng.choice(self._nodes)
        for leader in self._leaders()[:1]:
            assert leader.state is not None
            if find(leader.state.voters, node.id):
                self._remove(leader, node)
            else:
                self._add(leader, node)

    def _change_and_split(self, node: Node) -> None:
        """The leader is asked for a change, and a moment later it is cut off, alone or with another
        node."""
        self._ask_change(node)
        others = self._world.rng.sample([one.id for one in self._nodes if one is not node],
                                        self._world.rng.choice((0, 1)))  # fmt: skip
        late_ms = self._world.rng.uniform(0, 5) * self._setup.delay_ms
        self._world.later(
            late_ms, lambda: None if self._scene.healed else self._part({node.id, *others})
        )

    def _add_voter(self, node: Node) -> None:
        """An administrator asks every leader."""
        for leader in self._leaders():
            self._add(leader, node)

    def _add(self, leader: Node, node: Node) -> None:
        voter = node.options.itself
        assert voter is not None
        leader.note("is asked to add", node.id)
        leader.deliver(Request("admin", AddRaftVoterRequest(voter)))

    def _remove_voter(self, node: Node) -> None:
        """An administrator asks every leader."""
        for leader in self._leaders():
            self._remove(leader, node)

    def _remove(self, leader: Node, node: Node) -> None:
        """Unless too many of those left have lost their disks."""
        assert leader.state is not None
        lives = {one.key for one in self._nodes}
        one = find(leader.state.voters, node.id)
        left = without_voter(leader.state.voters, node.id)
        if one is None or len(left) < 2:
            return
        living = sum(is_voter((voter,), key) for voter in left for key in lives)
        if living >= majority(left):
            leader.note("is asked to remove", node.id)
            leader.deliver(Request("admin", RemoveRaftVoterRequest(one.key)))

    def _upgrade(self, _: Node) -> None:
        for leader in self._leaders():
            leader.deliver(ChangeVersion("admin", 1))

    def _wipe(self, node: Node) -> None:
        """The disk is lost; the node comes back with another."""
        checks = self._scene.checks
        versions = [version_of(one.state.log) for one in self._nodes if one.state is not None]
        if min(versions) < 1 or not checks.may_lose(node):
            return
        node.note("loses its disk")
        node.stop(power=True)
        checks.lost[node.key] = node.disk
        self._scene.new_disk(node)
        self._restart_later(node)

    def _wipe_voter(self, _: Node) -> None:
        """A voter loses its disk after another was cut off, which comes back as the leader is cut
        off: what was committed is on the lost disk and on the leader alone."""
        leaders = self._leaders()[:1]
        others = [one for one in self._nodes if one not in leaders]
        if not leaders or len(others) < 2:
            return
        behind, wiped = self._world.rng.sample(others, 2)
        inward, outward = self._around(behind)
        self._cut_links(inward | outward, most=20)

        def then() -> None:
            if not self._scene.healed:
                self._wipe(wiped)
                self._roll(wiped)

        self._later(then, 0.1, 1)
