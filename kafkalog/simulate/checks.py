"""The rules that hold in every run, checked while it runs and at its end.

committed   a record that a leader shows stays at its offset forever, on each later leader
one leader  per leader epoch; epochs, of leaders and of controllers, never go back
maximal     nothing is shown that a member of the ISR lacks
candidate   each member of the ISR has all committed records
follower    what a follower shows is committed
monotone    within a leader epoch the high watermark never goes back
orderly     what a leader acknowledged with acks=1 is committed once it shut down in order
reads       a reader only sees committed records
once        each record of an idempotent producer is there once, in order
decides     no decision of a controller raises an exception
recreated   a topic has no record of an earlier topic of its name
equal       in the end all replicas are equal and in sync, and every producer has its answers; no
            node has a replica of a deleted topic
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol
from uuid import UUID

from kafkalog.replication.isr import Isr
from kafkalog.simulate.around import Copied
from kafkalog.simulate.records import Kept, kept
from kafkalog.simulate.world import Violated, World
from kafkalog.testing.zookeeper import Tree
from kafkalog.types import TopicPartition
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Delete, Set

__all__ = ["Checks"]

COMPARED = 8
"""How many of the last committed records a new leader must have; at the end all are compared."""


class Judged(Protocol):
    """A node."""

    number: int

    @property
    def replicas(self) -> Mapping[TopicPartition, Copied]:
        """Its replicas."""


class Checks:
    """The checks of one run."""

    def __init__(self, world: World, there: Tree, unclean: bool) -> None:
        self.nodes: Mapping[int, Judged] = {}
        self.committed: dict[TopicPartition, list[Kept]] = {}
        """By partition, in the order of offsets, from 0."""
        self.sent: dict[int, tuple[int, int]] = {}
        """By checksum of each batch of an idempotent producer: producer and sequence."""
        self.meant: dict[int, UUID] = {}
        """By checksum of each batch: the only topic that it may be in."""
        self._ids: dict[str, UUID] = {}
        self._world, self._tree, self._unclean = world, there, unclean
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._elected: dict[int, int] = {}
        there.on_commit = self._written

    # ---- epochs -----------------------------------------------------------------------------

    def elected(self, node: int, epoch: int) -> None:
        """A controller was elected."""
        if self._elected.setdefault(epoch, node) != node:
            raise Violated(f"one-controller: {self._elected[epoch]} and {node} in epoch {epoch}")

    def _written(self, operations: Sequence[Any]) -> None:
        for one in operations:
            parent, _, name = one.path.rpartition("/")
            if parent == tree.TOPICS and isinstance(one, Create):
                self._created(name, tree.read_topic(name, one.data).topic_id)
            elif parent == tree.TOPICS and isinstance(one, Delete):
                del self._ids[name]
            if isinstance(one, Create | Set) and one.path.endswith("/state"):
                topic, _, number = one.path.split("/")[3:6]
                state = tree.read_partition(topic, int(number), one.data)
                epochs = state.leader_epoch, state.controller_epoch
                before = self._epochs.get(one.path, (-1, -1))
                self._world.note(
                    f"{topic}-{number}: leader {state.leader}, epoch {state.leader_epoch}, "
                    f"isr {state.isr}, by controller {state.controller_epoch}"
                )
                if epochs[0] < before[0] or epochs[1] < before[1]:
                    raise Violated(f"epochs: {one.path} went from {before} back to {epochs}")
                self._epochs[one.path] = epochs
                self._may_lead(TopicPartition(topic, int(number)), state.isr)

    def _created(self, topic: str, topic_id: UUID) -> None:
        """Nothing of an earlier topic of that name counts any more."""
        self._ids[topic] = topic_id
        for tp in [tp for tp in self.committed if tp.topic == topic]:
            del self.committed[tp]
        for key in [key for key in self._leaders if key[0].topic == topic]:
            del self._leaders[key]
        for path in [path for path in self._epochs if path.split("/")[3] == topic]:
            del self._epochs[path]

    def is_current(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """True if the topic of that name has this id now, and is not to be deleted: until all nodes
        have dropped it, the next controller may have one lead it that has."""
        doomed = f"{tree.DELETE_TOPICS}/{tp.topic}" in self._tree.znodes
        return not doomed and self._ids.get(tp.topic) == topic_id

    def _may_lead(self, tp: TopicPartition, isr: Sequence[int]) -> None:
        shown = len(self.committed.get(tp, ()))
        for member in () if self._unclean else isr:
            found = self.nodes[member].replicas.get(tp)
            if found is None or not self.is_current(tp, found.topic_id):
                continue
            if found.log.end_offset < shown:
                raise Violated(
                    f"candidate: {tp}: node {member} is in the ISR and ends at "
                    f"{found.log.end_offset}, committed are {shown}"
                )

    def state(self, tp: TopicPartition) -> tree.PartitionState | None:
        """A partition's state in the tree."""
        znode = self._tree.znodes.get(tree.partition_path(*tp))
        return None if znode is None else tree.read_partition(*tp, znode.data)

    # ---- leaders ----------------------------------------------------------------------------

    def leads(self, replica: Copied, now: Isr) -> None:
        """A node becomes a leader."""
        tp, epoch, node = replica.tp, now.leader_epoch, replica.where
        if not self.is_current(tp, replica.topic_id):
            return
        if self._leaders.setdefault((tp, epoch), node) != node:
            raise Violated(
                f"one-leader: {tp} in epoch {epoch}: nodes {self._leaders[tp, epoch]} and {node}"
            )
        state = self.state(tp)
        if state is None or state.leader_epoch != epoch:
            return  # it learned of this late: another node leads by now
        known = self.committed.setdefault(tp, [])
        if self._unclean and now.recovering:
            self._forget(replica, known)
        found = list(kept(replica.log, len(known) - COMPARED, len(known)))
        if found != [one for one in known[-COMPARED:] if one.offset >= replica.log.start_offset]:
            raise Violated(
                f"committed: node {node} leads {tp} in epoch {epoch} and ends with "
                f"{found[-1:]}, committed are {len(known)}, the last {known[-1:]}"
            )

    @staticmethod
    def _forget(replica: Copied, known: list[Kept]) -> None:
        """Forget as committed what a leader that was not in sync lacks or has differently."""
        start = replica.log.start_offset
        pairs = zip(kept(replica.log, start, len(known)), known[start:], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        del known[start + same :]

    def shown(self, replica: Copied, before: tuple[int, int], high_watermark: int) -> None:
        """A leader shows more than before."""
        tp, node = replica.tp, replica.where
        if not self.is_current(tp, replica.topic_id):
            return
        epoch = replica.leader_epoch
        if before[0] == epoch and high_watermark < before[1]:
            raise Violated(f"monotone: {tp} on {node}: from {before[1]} to {high_watermark}")
        known = self.committed.setdefault(tp, [])
        new = list(kept(replica.log, len(known), high_watermark))
        if [one.offset for one in new] != [*range(len(known), high_watermark)]:
            raise Violated(f"committed: {tp} on {node} shows {high_watermark} without all of it")
        for one in new:
            if self.meant.get(one.checksum, replica.topic_id) != replica.topic_id:
                raise Violated(f"recreated: {tp} on {node} shows {one} of an earlier topic")
        state = self.state(tp)
        if new and state is not None and state.leader_epoch == epoch:
            for member in state.isr:
                self._has(member, replica, high_watermark)
        known.extend(new)
        if new:
            self._world.note(f"{tp.topic}-{tp.partition} on {node}: {high_watermark} are shown")

    def handed_over(self, replica: Copied, taken: Sequence[tuple[int, int]]) -> None:
        """A leader that shuts down in order no longer leads, or ends."""
        known = self.committed.get(replica.tp, [])
        for offset, checksum in taken if self.is_current(replica.tp, replica.topic_id) else ():
            if not self._unclean and (offset >= len(known) or known[offset].checksum != checksum):
                raise Violated(f"orderly: {replica!r}: {offset}, taken with acks=1, is lost")

    def follows(self, replica: Copied, before: int) -> None:
        """A follower shows more than before."""
        tp, shown = replica.tp, replica.handle.high_watermark
        if not self.is_current(tp, replica.topic_id):
            return
        start = max(before, replica.log.start_offset)
        wanted = self.committed.get(tp, [])[start:shown]
        if not self._unclean and [*kept(replica.log, start, shown)] != wanted:
            raise Violated(f"follower: {replica!r} shows {shown}, not all of it is committed")

    def _has(self, member: int, replica: Copied, high_watermark: int) -> None:
        found = self.nodes[member].replicas.get(replica.tp)
        if found is None or found.topic_id != replica.topic_id:
            return
        end = found.log.end_offset
        if end < high_watermark:
            raise Violated(
                f"maximal: {replica!r} shows {high_watermark}, node {member} of the ISR has {end}"
            )

    # ---- clients ----------------------------------------------------------------------------

    def acknowledged(self, tp: TopicPartition, offset: int, checksum: int) -> None:
        """A producer's record was acknowledged as committed."""
        known = self.committed.get(tp, [])
        if offset >= len(known) or known[offset].checksum != checksum:
            raise Violated(f"acknowledged: {tp}: offset {offset} is not committed")

    def read(self, tp: TopicPartition, offset: int, checksum: int) -> None:
        """A reader saw a record."""
        known = self.committed.get(tp, [])
        if offset >= len(known) or known[offset].checksum != checksum:
            raise Violated(f"reads: {tp}: what was read at {offset} is not committed")

    def out_of_order(
        self, tp: TopicPartition, leader_epoch: int, producer: int, sequence: int
    ) -> None:
        """A producer with one batch in flight got the answer that one before it is missing.  A
        leader that does not know yet that another node leads lacks what that one appended, and may
        say so."""
        state = self.state(tp)
        if state is not None and leader_epoch < state.leader_epoch:
            return
        raise Violated(f"once: {tp}: sequence {sequence} of producer {producer}: out of order")

    # ---- the end ----------------------------------------------------------------------------

    def left(self, topic: str) -> str:
        """The remains of a topic that is deleted, or to be deleted; empty: none."""
        if topic in self._ids:
            return f"{topic} is in the tree"
        those = [(node.number, tp) for node in self.nodes.values() for tp in node.replicas
                 if tp.topic == topic]  # fmt: skip
        return f"deleted: {those} are left" if those else ""

    def unsettled(self, partitions: Sequence[TopicPartition]) -> str:
        """The first fault of the final state; empty: none."""
        for tp in partitions:
            state = self.state(tp)
            if state is None:
                return f"{tp} was never led"
            copies = [node.replicas.get(tp) for node in self._holders(tp)]
            if sorted(state.isr) != [node.number for node in self._holders(tp)]:
                return f"{tp}: isr {state.isr}"
            ends = [(one.log.end_offset, one.handle.high_watermark) for one in copies if one]
            if len(ends) < len(copies) or len({end for both in ends for end in both}) > 1:
                return f"{tp}: ends and high watermarks {ends}"
        return ""

    def _holders(self, tp: TopicPartition) -> list[Judged]:
        znode = self._tree.znodes[tree.topic_path(tp.topic)]
        replicas = tree.read_topic(tp.topic, znode.data).replicas[tp.partition]
        return [self.nodes[one] for one in sorted(replicas)]

    def final(self, partitions: Sequence[TopicPartition]) -> None:
        """The cluster has settled: compare everything."""
        for tp in partitions:
            known = self.committed.get(tp, [])
            for node in self._holders(tp):
                log = node.replicas[tp].log
                found = list(kept(log, 0, log.end_offset))
                wanted = known[log.start_offset :]
                if found[: len(wanted)] != wanted:
                    at = next(n for n, one in enumerate(wanted) if found[n : n + 1] != [one])
                    raise Violated(
                        f"equal: {tp} on {node.number} has {found[at : at + 1]}, committed is "
                        f"{wanted[at]}"
                    )
            if not self._unclean:
                self._once(tp, known)

    def _once(self, tp: TopicPartition, known: Sequence[Kept]) -> None:
        last: dict[int, int] = {}
        for producer, sequence in self._idempotent(known):
            if sequence <= last.get(producer, -1):
                raise Violated(
                    f"once: {tp}: sequence {sequence} of producer {producer} comes after "
                    f"{last[producer]}"
                )
            last[producer] = sequence

    def _idempotent(self, known: Sequence[Kept]) -> Iterator[tuple[int, int]]:
        for one in known:
            if one.checksum in self.sent:
                yield self.sent[one.checksum]
