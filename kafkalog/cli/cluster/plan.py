"""Plans where replicas should be, moving as few as possible.  Pure."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kafkalog.types import TopicPartition

__all__ = ["Layout", "Move", "drained", "evened", "moves", "unled"]

Layout = Mapping[TopicPartition, tuple[int, ...]]
"""The nodes of each partition; the first one is the preferred leader."""
Racks = Mapping[int, "str | None"]
"""The nodes that may have replicas, and their racks."""
Places = dict[TopicPartition, list[int]]


class Move(NamedTuple):
    """The change of one partition."""

    now: tuple[int, ...]
    then: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """Nodes that get a new replica."""
        return tuple(node for node in self.then if node not in self.now)

    @property
    def removing(self) -> tuple[int, ...]:
        """Nodes that lose their replica."""
        return tuple(node for node in self.now if node not in self.then)


def moves(now: Layout, then: Layout) -> dict[TopicPartition, Move]:
    """The differences, in order."""
    return {
        tp: Move(tuple(now[tp]), tuple(then[tp]))
        for tp in sorted(then)
        if tuple(now[tp]) != tuple(then[tp])
    }


def evened(layout: Layout, racks: Racks, factor: int | None = None) -> Layout:
    """The same number of replicas and of preferred leaderships on each of these nodes, within one.

    `factor`: replicas of each partition; None: as many as it has, at most one per node.  A replica
    moves only if it must, or if one node has two more than another.
    """
    places = _placed(layout, racks, factor)
    _level(places, racks)
    _share_leaders(places, racks)
    return {tp: tuple(nodes) for tp, nodes in places.items()}


def drained(layout: Layout, node: int, racks: Racks) -> Layout:
    """No replica on `node`; all others stay where they are.

    A partition that no other node may hold stays.
    """
    some = {tp: nodes for tp, nodes in layout.items() if node in nodes}
    left = {n: rack for n, rack in racks.items() if n != node}
    there = _counts(layout, left)
    found = dict(layout)
    for tp in sorted(some):
        kept = [n for n in some[tp] if n != node]
        target = _best(kept, left, there)
        if target is None:
            continue
        there[target] += 1
        # At the same place in the order, but leadership goes to nodes that have the records.
        at = some[tp].index(node)
        kept.insert(max(at, min(1, len(kept))), target)
        found[tp] = tuple(kept)
    return {**found, **unled({tp: found[tp] for tp in some}, node, dict.fromkeys(some, left))}


def unled(layout: Layout, node: int, able: Mapping[TopicPartition, Collection[int]]) -> Layout:
    """`node` becomes the last choice of each partition that another could lead; of the nodes in
    `able`, the one with the fewest leaderships becomes the first.

    Changing only a partition's order copies nothing.
    """
    firsts = Counter(nodes[0] for nodes in layout.values() if nodes)
    found = dict(layout)
    for tp in sorted(layout):
        nodes = layout[tp]
        others = [n for n in nodes if n != node]
        heads = [n for n in others if n in able[tp]]
        if not heads or nodes[0] in heads:
            continue
        head = min(heads, key=lambda n: (firsts[n], others.index(n)))
        firsts[head] += 1
        firsts[nodes[0]] -= 1
        last = (node,) if node in nodes else ()
        found[tp] = (head, *(n for n in others if n != head), *last)
    return found


# ---- replicas ------------------------------------------------------------------------------


def _counts(layout: Mapping[TopicPartition, Collection[int]], racks: Racks) -> Counter[int]:
    found = Counter(dict.fromkeys(racks, 0))
    for nodes in layout.values():
        found.update(node for node in nodes if node in racks)
    return found


def _placed(layout: Layout, racks: Racks, factor: int | None) -> Places:
    """Give each partition the right number of replicas, all on allowed nodes."""
    places = {tp: [n for n in nodes if n in racks] for tp, nodes in sorted(layout.items())}
    there = _counts(places, racks)
    for tp, nodes in places.items():
        wanted = min(len(layout[tp]) if factor is None else factor, len(racks))
        while len(nodes) > wanted:
            # Remove the last ones first, the fullest node's of these: leaders stay.
            gone = max(nodes[1:], key=lambda n: (_shared(nodes, n, racks), there[n]))
            nodes.remove(gone)
            there[gone] -= 1
        while len(nodes) < wanted:
            target = _best(nodes, racks, there)
            assert target is not None, "there are as many nodes as replicas"
            nodes.append(target)
            there[target] += 1
    return places


def _shared(nodes: Collection[int], node: int, racks: Racks) -> int:
    """How many of the others are in a node's rack; 0 if its rack is unknown."""
    rack = racks.get(node)
    return sum(rack is not None and n != node and racks.get(n) == rack for n in nodes)


def _best(nodes: Collection[int], racks: Racks, there: Counter[int]) -> int | None:
    """The node that should get one more replica of this partition; None if all have one."""
    free = [n for n in racks if n not in nodes]
    return min(free, key=lambda n: (_shared(nodes, n, racks), there[n], n), default=None)


def _level(places: Places, racks: Racks) -> None:
    """While a node has two replicas more than another, move some of them there."""
    there = _counts(places, racks)
    least, rest = divmod(sum(there.values()), len(racks))
    most = least + bool(rest)
    moved = True
    while moved:
        moved = False
        order = sorted(racks, key=lambda n: (-there[n], n))
        for full in order:
            for empty in reversed(order):
                if there[full] - there[empty] > 1:
                    # Everything up to the middle in one step, then one at a time.
                    count = max(1, min(there[full] - most, least - there[empty]))
                    done = _shift(full, empty, count, places, racks)
                    there[full] -= done
                    there[empty] += done
                    moved = moved or done > 0


def _shift(full: int, empty: int, count: int, places: Places, racks: Racks) -> int:
    """Move up to `count` replicas; returns how many.  No rack gets a second one of a partition this
    way.

    It takes topics in turn, beginning with the one of which `full` has the largest surplus, and
    replicas that do not lead first.
    """
    can: dict[str, list[TopicPartition]] = {}
    more: Counter[str] = Counter()
    for tp, nodes in places.items():
        more[tp.topic] += (full in nodes) - (empty in nodes)
        if full in nodes and empty not in nodes:
            others = [n for n in nodes if n != full]
            if _shared(others, empty, racks) <= _shared(nodes, full, racks):
                can.setdefault(tp.topic, []).append(tp)
    for some in can.values():
        some.sort(key=lambda tp: places[tp][0] == full, reverse=True)
    heap = [(-more[topic], topic) for topic in can]
    heapq.heapify(heap)
    done = 0
    while heap and done < count:
        rank, topic = heapq.heappop(heap)
        nodes = places[can[topic].pop()]
        nodes[nodes.index(full)] = empty
        done += 1
        if can[topic]:
            heapq.heappush(heap, (rank + 2, topic))
    return done


# ---- leaders -------------------------------------------------------------------------------


def _share_leaders(places: Places, racks: Racks) -> None:
    """While one node leads two partitions more than another, change leaders along a chain of
    partitions, until the other one leads one more."""
    heads = Counter(dict.fromkeys(racks, 0))
    heads.update(nodes[0] for nodes in places.values() if nodes)
    for nodes in places.values():  # most of it; the rest needs chains over several nodes
        target = min(nodes, key=lambda n: heads[n], default=None)
        if target is not None and heads[nodes[0]] - heads[target] > 1:
            _lead(nodes, target, heads)
    while True:
        order = sorted(racks, key=lambda n: (-heads[n], n))
        ways = (_way(full, heads, places) for full in order if heads[full] - heads[order[-1]] > 1)
        way = next(filter(None, ways), None)
        if way is None:
            return
        for tp, target in way:
            _lead(places[tp], target, heads)


def _lead(nodes: list[int], target: int, heads: Counter[int]) -> None:
    heads[nodes[0]] -= 1
    heads[target] += 1
    at = nodes.index(target)
    nodes[0], nodes[at] = nodes[at], nodes[0]


def _way(full: int, heads: Counter[int], places: Places) -> list[tuple[TopicPartition, int]]:
    """The shortest chain that passes one leadership to a node that leads two fewer: the new
    leaders; empty if there is none."""
    led: dict[int, list[TopicPartition]] = {}
    for tp, nodes in places.items():
        if nodes:
            led.setdefault(nodes[0], []).append(tp)
    came: dict[int, tuple[TopicPartition, int]] = {}  # by node: what it would lead, who does
    queue = deque([full])
    while queue:
        node = queue.popleft()
        if heads[full] - heads[node] > 1:
            found = []
            while node != full:
                tp, before = came[node]
                found.append((tp, node))
                node = before
            return found
        for tp in led.get(node, ()):
            for other in places[tp][1:]:
                if other != full and other not in came:
                    came[other] = (tp, node)
                    queue.append(other)
    return []
