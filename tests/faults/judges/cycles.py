"""Cycles in a directed graph, by Tarjan's strongly connected components."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

Edges = dict[int, dict[int, str]]
"""From each node: its successors, and the reason for each edge."""


def components(count: int, edges: Edges) -> Iterator[list[int]]:
    """The strongly connected components of nodes 0..count-1.  Not recursive: histories are
    long."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    stacked: set[int] = set()
    for root in range(count):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        stacked.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    stacked.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in stacked:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = [stack.pop()]
                    while part[-1] != node:
                        part.append(stack.pop())
                    stacked.difference_update(part)
                    yield part


def cycle(count: int, edges: Edges) -> list[tuple[int, str]]:
    """A shortest cycle through some node, with the reason for each step; empty if there is none."""
    for part in components(count, edges):
        inside = set(part)
        if len(part) == 1 and part[0] not in edges.get(part[0], ()):
            continue
        start = min(part)
        came: dict[int, int] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for other in edges.get(node, ()):
                if other == start:
                    path = [node]
                    while path[-1] != start:
                        path.append(came[path[-1]])
                    path.reverse()
                    following = [*path[1:], start]
                    return [(a, edges[a][b]) for a, b in zip(path, following, strict=True)]
                if other in inside and other not in came:
                    came[other] = node
                    waiting.append(other)
    return []
