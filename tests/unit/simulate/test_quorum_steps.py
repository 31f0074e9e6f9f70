"""Scenarios of a quorum, step by step: each ends well, and badly with its mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalog.raft.log import last_epoch
from kafkalog.raft.messages import RemoveRaftVoterRequest, Request, VoteRequest
from kafkalog.simulate.quorum.cluster import Cluster
from kafkalog.simulate.quorum.mutants import MUTANTS, planted
from kafkalog.simulate.quorum.node import Node, Token
from kafkalog.simulate.quorum.setup import Setup
from kafkalog.simulate.world import Violated


class Stage:
    """A quorum in which only the scenario does harm."""

    def __init__(self, **setup: int) -> None:
        """Started, with a leader whom all follow."""
        quiet = Setup(
            observers=0, slow_share=0, lost_share=0, twice_share=0, fault_ms=1e12, append_ms=1e12,
            auto_join=False, moments={}, faults={"kill": 1},
        )  # fmt: skip
        self.cluster = Cluster(7, quiet._replace(**setup))
        self.cluster.start()
        self.until(lambda: not self.cluster.checks.unsettled())

    @property
    def leader(self) -> Node:
        """The one that leads the latest epoch."""
        found = [(one.state.epoch, one.id) for one in self.cluster.nodes if one.leads and one.state]
        return self.cluster.nodes[max(found)[1]]

    def until(self, done: Callable[[], bool], ms: float = 5_000) -> None:
        """Let everything happen until a moment."""
        world = self.cluster.world
        world.run(world.now_ms + ms, done)
        assert done(), "\n".join(world.trace[-20:])

    def part(self, *groups: set[int]) -> None:
        """The nodes of different groups do not reach each other."""
        self.cluster.cuts = {
            (one, other) for group in groups for one in group
            for rest in groups if rest is not group for other in rest
        }  # fmt: skip

    def remove(self, leader: Node, node: Node) -> None:
        """An administrator asks a leader to remove a voter."""
        leader.deliver(Request("admin", RemoveRaftVoterRequest(node.key)))


def the_change_of_2015(stage: Stage) -> None:
    """Two leaders change the voters, each of them before it has committed anything: the published
    scenario of Raft's mistake, with four voters."""
    first, *others = sorted(stage.cluster.nodes, key=lambda one: one is not stage.leader)
    stage.part({first.id}, {one.id for one in others})
    stage.remove(first, others[0])  # it cannot be committed
    epoch = first.state.epoch if first.state else 0
    stage.until(lambda: any(one.leads for one in others))
    second = stage.leader
    assert second.state is not None and second.state.epoch > epoch
    rest = [one for one in others if one is not second]
    voter = next(one for one in rest if second is others[0] or one is not others[0])
    witness = next(one for one in rest if one is not voter)
    stage.part({first.id, voter.id}, {second.id, witness.id})
    stage.remove(second, first)
    stage.cluster.world.run(stage.cluster.world.now_ms + 5_000)


def _says_so(node: Node) -> bool:
    """True if a node's quorum-state names it as the leader."""
    return node.disk.stored is not None and node.disk.stored.leader_id == node.id


def a_late_candidate(stage: Stage) -> None:
    """A leader loses power, and the first record of its epoch with it; then a request for its vote
    in that epoch arrives."""
    first = stage.leader
    first.stop()
    stage.until(lambda: any(one.leads and _says_so(one) for one in stage.cluster.nodes))
    leader = stage.leader
    assert leader.state is not None
    epoch = leader.state.epoch
    other = next(one for one in stage.cluster.nodes if one not in (first, leader))
    assert other.state is not None
    leader.stop()
    leader.disk.truncate(leader.disk.synced)
    leader.start()
    view = other.state.log
    asked = VoteRequest(leader.key, epoch, other.key, last_epoch(view), view.end, False)
    leader.deliver(Request(Token(other.id, other.life, 1_000, asked), asked))
    stage.cluster.world.run(stage.cluster.world.now_ms + 100)


SCENARIOS = {
    "change-before-own-epoch": (the_change_of_2015, {"voters": 4}),
    "forgets-leading": (a_late_candidate, {}),
}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_scenario_ends_well(name: str) -> None:
    scenario, setup = SCENARIOS[name]
    stage = Stage(**setup)
    scenario(stage)
    stage.cluster.settle()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_mistake_is_found(name: str) -> None:
    scenario, setup = SCENARIOS[name]
    stage = Stage(**setup)
    with planted(MUTANTS[name]), pytest.raises(Violated):
        scenario(stage)
