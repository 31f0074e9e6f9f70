"""The invariants of a simulated quorum; the first word of a violation names one."""

from __future__ import annotations

from math import inf
from typing import Any

from kafkalog.raft.log import Batch, voters_in
from kafkalog.raft.messages import (
    Event,
    FetchRequest,
    FetchSnapshotRequest,
    QuorumResponse,
    Request,
    VoteRequest,
)
from kafkalog.raft.replicas import ReplicaKey, find, is_voter, majority
from kafkalog.raft.roles import Follower, Leader
from kafkalog.raft.state import State
from kafkalog.simulate.quorum.disk import Disk, Snapshot
from kafkalog.simulate.quorum.node import Node, Token
from kafkalog.simulate.world import Violated

__all__ = ["Checks"]

DEPOSED = 4
"""A leader that no majority follows resigns within this many fetch timeouts of its clock."""


class Checks:
    """Watches all nodes at the same time, as nobody could in a real cluster."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.nodes: list[Node] = []
        self.lost: dict[ReplicaKey, Disk] = {}
        """The disks of replicas that lost theirs, as they were."""
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.batches: dict[tuple[int, int], tuple[Batch, tuple[int, int]]] = {}
        """By (base offset, epoch): the batch, and what precedes it."""
        self.commits: dict[int, tuple[Batch, int]] = {}
        """By base offset: the batch, and the epoch in which it was first shown."""
        self.end = 0
        """The end of all that was ever shown as committed."""
        self.acknowledged: dict[Any, int] = {}
        """Values whose append was answered, and their offsets."""
        self._fetches: dict[int, tuple[int, dict[int, float]]] = {}
        """Per leader: the epoch, and when each voter last fetched, by the leader's clock."""
        self._voters: dict[int, tuple[tuple[Any, ...], float]] = {}
        """Per leader: its epoch and voters, and since when they have been these, by its clock."""

    # ---- elections -----------------------------------------------------------------------------

    def leads(self, node: Node, epoch: int) -> None:
        """At most one leader per epoch; it has everything that was committed in earlier ones."""
        other = self.leaders.setdefault(epoch, node.key)
        if other != node.key:
            raise Violated(f"one-leader: nodes {other.id} and {node.id} lead epoch {epoch}")
        for offset, (batch, shown) in self.commits.items():
            found = node.disk.batches.get(offset)
            lacks = found is None or found.epoch != batch.epoch
            if shown < epoch and offset >= node.disk.start and lacks:
                raise Violated(
                    f"complete: node {node.id} leads epoch {epoch} without offset {offset}"
                )
        if node.disk.start > self.end:
            raise Violated(f"complete: node {node.id} begins at {node.disk.start}")

    def sent(self, node: Node, message: Any) -> None:
        """A candidate that asks for votes has given its own."""
        if isinstance(message, VoteRequest) and not message.pre_vote:
            self._vote(node, message.replica_epoch, node.key)

    def answered(self, node: Node, token: Token, message: QuorumResponse) -> None:
        """A vote is given once; a pre-vote only by a replica without a live leader."""
        asked = token.message
        if not isinstance(asked, VoteRequest) or not message.vote_granted:
            return
        if not asked.pre_vote:
            self._vote(node, message.leader_epoch, asked.replica)
            return
        now = node.state
        assert now is not None
        epoch, at_ms = node.fetched
        live = epoch == now.epoch and at_ms + now.options.fetch_timeout_ms > node.now_ms
        if live and isinstance(now.role, Follower):
            raise Violated(f"disturbed: node {node.id} follows, and votes for another")

    def _vote(self, node: Node, epoch: int, candidate: ReplicaKey) -> None:
        other = self.votes.setdefault((node.key, epoch), candidate)
        if other != candidate:
            raise Violated(
                f"one-vote: node {node.id} votes for {other.id} and {candidate.id} in epoch {epoch}"
            )

    # ---- every event ---------------------------------------------------------------------------

    def stepped(self, node: Node, before: State, event: Event) -> None:
        """Epochs and high watermarks never go back; a leader without followers resigns."""
        now = node.state
        assert now is not None
        if now.epoch < before.epoch:
            raise Violated(f"epochs: node {node.id} goes from {before.epoch} to {now.epoch}")
        if now.high_watermark < before.high_watermark:
            raise Violated(
                f"monotone: node {node.id}: {before.high_watermark} to {now.high_watermark}"
            )
        if now.high_watermark > now.log.end:
            raise Violated(f"exposed: node {node.id} shows more than it has")
        if not isinstance(now.role, Leader):
            self._fetches.pop(node.id, None)
            return
        epoch, times = self._fetches.get(node.id, (-1, {}))
        if epoch != now.epoch:
            times = dict.fromkeys((one.id for one in self.nodes), node.now_ms)
            self._fetches[node.id] = now.epoch, times
        asked = event.message if isinstance(event, Request) else None
        if isinstance(asked, FetchRequest | FetchSnapshotRequest) and (
            asked.current_leader_epoch == now.epoch
        ):
            times[asked.replica.id] = node.now_ms
        self._followed(node, now, times)

    def _followed(self, node: Node, now: State, times: dict[int, float]) -> None:
        voters = now.voters
        known, since_ms = self._voters.get(node.id, ((), 0.0))
        if known != (now.epoch, voters):  # what another majority owes begins now
            since_ms = node.now_ms
            self._voters[node.id] = (now.epoch, voters), since_ms
        latest = sorted(
            (inf if one.key.id == node.id else times.get(one.key.id, -inf) for one in voters),
            reverse=True,
        )
        limit_ms = DEPOSED * now.options.fetch_timeout_ms
        if latest and max(since_ms, latest[majority(voters) - 1]) + limit_ms < node.now_ms:
            raise Violated(f"deposed: node {node.id} leads epoch {now.epoch} without followers")

    # ---- the log -------------------------------------------------------------------------------

    def appended(self, node: Node, batch: Batch) -> None:
        """Two logs with a record of the same offset and epoch are equal up to it."""
        place = batch.base_offset, batch.epoch
        previous = (-1, -1)
        if batch.base_offset > node.disk.start:
            batches = reversed(node.disk.batches.values())
            next(batches)
            last = next(batches)
            previous = last.base_offset, last.epoch
        known = self.batches.setdefault(place, (batch, previous))
        if known[0] != batch:
            raise Violated(f"matching: node {node.id}: two batches are at {place}")
        if (-1, -1) in (known[1], previous):
            self.batches[place] = batch, max(known[1], previous)
        elif known[1] != previous:
            raise Violated(f"matching: node {node.id}: {place} comes after {previous}")

    def committed(self, node: Node, before: int, offset: int) -> None:
        """A committed record stays; and a majority of the voters has it on disk."""
        now = node.state
        assert now is not None
        leads = isinstance(now.role, Leader)
        last: Batch | None = None
        place = before
        while place < offset:
            last = node.disk.batches[place]
            known, _ = self.commits.setdefault(place, (last, now.epoch))
            if known != last:
                raise Violated(f"committed: node {node.id}: offset {place} is another record")
            if leads and last.epoch == now.epoch and not last.control:
                self.acknowledged[last.data] = place
            place = last.last_offset + 1
        if place > self.end:
            if last is not None:
                self._on_disks(node, now, last)
            self.end = place

    def _on_disks(self, node: Node, now: State, batch: Batch) -> None:
        """The high watermark goes up for the first time."""
        voters = voters_in(now.log)
        held = 0
        for voter in voters:
            disks = [one.disk for one in self.nodes if is_voter((voter,), one.key)]
            disks += [disk for key, disk in self.lost.items() if is_voter((voter,), key)]
            held += any(disk.has(batch) for disk in disks)
        if held < majority(voters):
            raise Violated(
                f"exposed: node {node.id} shows offset {batch.last_offset}, which {held} of "
                f"{len(voters)} voters have"
            )

    def truncates(self, node: Node, offset: int) -> None:
        """A committed record stays, also where this replica does not know yet that it is, unless it
        follows the leader of an epoch before the one that committed it: its copy did not count."""
        assert node.state is not None
        for base in reversed(node.disk.batches):
            if base < offset:
                return
            batch, shown = self.commits.get(base, (None, 0))
            if batch == node.disk.batches[base] and shown <= node.state.epoch:
                raise Violated(f"truncated: node {node.id} removes offset {base}, committed")

    def rests(self, node: Node) -> None:
        """The voters in force are those of the log."""
        now = node.state
        assert now is not None
        if now.voters != node.disk.voters_in_force():
            ids = [one.key.id for one in now.voters]
            raise Violated(f"voters: node {node.id} has {ids}, and others in its log")

    def loaded(self, node: Node, snapshot: Snapshot) -> None:
        """A snapshot has what was committed up to its end."""
        wanted = [
            batch.data for offset, (batch, _) in sorted(self.commits.items())
            if offset < snapshot.end.offset and not batch.control
        ]  # fmt: skip
        if snapshot.end.offset > self.end or list(snapshot.values) != wanted:
            raise Violated(f"committed: node {node.id} loads another snapshot")

    # ---- the end -------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """The reason why the quorum is not at rest; empty: it is."""
        leaders = [one for one in self.nodes if one.leads]
        if len(leaders) != 1:
            return f"{len(leaders)} leaders"
        leader = leaders[0].state
        assert leader is not None
        if leader.high_watermark != leader.log.end:
            return f"node {leader.me.id}: {leader.high_watermark} of {leader.log.end} committed"
        for node in self.nodes:
            now = node.state
            assert now is not None
            ends = now.epoch, now.log.end, now.high_watermark
            if ends != (leader.epoch, leader.log.end, leader.high_watermark):
                return f"node {node.id}: {ends}"
            if node.options.auto_join and leader.log.versions[-1][1] and not now.votes:
                return f"node {node.id} has not joined"
        return ""

    def settled(self) -> None:
        """All logs are equal, and nothing that was acknowledged is missing."""
        values = [one.values for one in self.nodes]
        if any(one != values[0] for one in values):
            raise Violated("equal: state machines differ at the end")
        missing = [one for one in self.acknowledged if one not in set(values[0])]
        if missing:
            raise Violated(f"acknowledged: {missing} are lost")
        if len(set(values[0])) != len(values[0]):
            raise Violated("once: a value is there twice")

    def may_lose(self, node: Node) -> bool:
        """True if the quorum survives the loss of a node's disk: one voter at a time, of three or
        more, and no set of voters in use has another lost one."""
        lives = {one.key for one in self.nodes}
        for one in self.nodes:
            if one.state is None or not one.alive:
                return False
            for _, voters in one.state.log.voters:
                gone = [
                    voter for voter in voters if voter.key not in lives or voter.key == node.key
                ]
                if find(voters, node.id) and (len(voters) < 3 or len(gone) > 1):
                    return False
        return True
