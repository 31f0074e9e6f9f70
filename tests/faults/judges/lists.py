"""Judges lists: appends to several keys together, and reads of a whole list.

A key's order is that of its longest reading; every other reading must be a prefix of it.  From
these orders follow dependencies between operations: `ww` (one value comes after the other), `wr`
(one read what the other had appended last), `rw` (one read the list before the other appended),
`process` (a client did one after the other) and `time` (one was over when the other began).  A
cycle of these is impossible.  But Kafka's transactions are not isolated in their writes (`ww` over
two keys may cross), and a leader that does not know yet that it was deposed may show an older
prefix (`rw`); so the caller says which dependencies are promised.

Kinds of anomaly:

lost        it was acknowledged, and the last reading did not find it
duplicate   a list has a value twice
divergent   two readings of a key, neither of which is a prefix of the other
phantom     a value was read that had not been appended
aborted     its append certainly failed, and it was read
torn        it is in the list of one of its keys, but not in another's
cycle       of dependencies that are promised
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.history import Anomaly, Append, History, Op, Outcome, Read
from tests.faults.judges.cycles import Edges, cycle

PROMISED = frozenset({"ww", "wr", "process", "time"})
"""If each append is to one key."""
TRANSACTIONS = PROMISED - {"ww"}
STRICT = PROMISED | {"rw"}
"""As if there were only one replica."""


def check(history: History, *, last: str, promised: Iterable[str] = PROMISED) -> list[Anomaly]:
    """`last`: the process that read every key at the end."""
    reads = [one for one in history.of(Read) if one.outcome is Outcome.OK]
    appends = {one.value: one for one in history.of(Append)}
    order: dict[str, list[int]] = {}
    for one in reads:
        if len(one.found) >= len(order.get(one.key, [])):
            order[one.key] = one.found
    final = {one.key: one.found for one in reads if one.process == last}
    return [
        *_prefixes(reads, order), *_values(reads, appends), *_there(appends, final),
        *_cycles(reads, appends, order, frozenset(promised)),
    ]  # fmt: skip


def _prefixes(reads: list[Read], order: dict[str, list[int]]) -> Iterator[Anomaly]:
    for one in reads:
        longest = order[one.key]
        if one.found != longest[: len(one.found)]:
            at = next(i for i, v in enumerate(one.found) if v != longest[i])
            yield Anomaly("divergent", f"{one.key}[{at}]: {one.found[at]} as {one.process} read "
                          f"it, {longest[at]} elsewhere")  # fmt: skip
        if len(set(one.found)) < len(one.found):
            twice = sorted({v for v in one.found if one.found.count(v) > 1})
            yield Anomaly("duplicate", f"{one.key}: {twice[:9]}, read by {one.process}")


def _values(reads: list[Read], appends: dict[int, Append]) -> Iterator[Anomaly]:
    for one in reads:
        for value in one.found:
            append, where = appends.get(value), f"{one.key}: {value}, read by {one.process}"
            if append is None or one.key not in append.keys or append.start > one.end:
                yield Anomaly("phantom", where)
            elif append.outcome is Outcome.FAIL:
                yield Anomaly("aborted", where)


def _there(appends: dict[int, Append], final: dict[str, list[int]]) -> Iterator[Anomaly]:
    found = {key: set(values) for key, values in final.items()}
    for one in appends.values():
        present = [key for key in one.keys if one.value in found.get(key, ())]
        if present and len(present) < len(one.keys):
            yield Anomaly("torn", f"{one.value} is in {present} of {one.keys}")
        elif one.outcome is Outcome.OK and not present:
            yield Anomaly("lost", f"{one.value} of {one.keys}")


def _cycles(
    reads: list[Read], appends: dict[int, Append], order: dict[str, list[int]],
    promised: frozenset[str],
) -> Iterator[Anomaly]:  # fmt: skip
    # A value that was never read has no place in the order; a failed append never happened.
    seen = {value for values in order.values() for value in values}
    operations: list[Op] = [*reads]
    operations += [a for v, a in appends.items() if v in seen and a.outcome is not Outcome.FAIL]
    number = {id(one): index for index, one in enumerate(operations)}
    edges: Edges = defaultdict(dict)

    def add(kind: str, one: Op | None, other: Op | None) -> None:
        if kind in promised and one is not other and id(one) in number and id(other) in number:
            edges[number[id(one)]].setdefault(number[id(other)], kind)

    for values in order.values():
        for value, following in itertools.pairwise(values):
            add("ww", appends.get(value), appends.get(following))
    for read in reads:
        if read.found:
            add("wr", appends.get(read.found[-1]), read)
        if len(read.found) < len(order[read.key]):
            add("rw", read, appends.get(order[read.key][len(read.found)]))
    for one, other in _successions(operations):
        add("process", one, other)
    for one, other in _times(operations):
        add("time", one, other)
    found = cycle(len(operations), edges)
    if found:
        steps = [f"{_named(operations[one])} -{kind}->" for one, kind in found]
        yield Anomaly("cycle", " ".join(steps))


def _successions(operations: list[Op]) -> Iterator[tuple[Op, Op]]:
    last: dict[str, Op] = {}
    for one in sorted(operations, key=lambda one: one.start):
        if one.process in last and last[one.process].end <= one.start:
            yield last[one.process], one
        last[one.process] = one


def _times(operations: list[Op]) -> Iterator[tuple[Op, Op]]:
    """Pairs of an operation and one that began after its end: enough to imply all the others."""
    ended = sorted((one for one in operations if one.end < math.inf), key=lambda one: one.end)
    ends = [one.end for one in ended]
    latest_start: list[float] = []  # of the operations that were over by then
    for one in ended:
        latest_start.append(max(one.start, latest_start[-1] if latest_start else -math.inf))
    for other in operations:
        over = bisect_left(ends, other.start)
        if over:
            # One that ended before the last of these began comes before that one, too.
            first = bisect_left(ends, latest_start[over - 1])
            for one in ended[first:over]:
                yield one, other


def _named(one: Op) -> str:
    if isinstance(one, Append):
        return f"{one.process} appends {one.value} to {one.keys}"
    assert isinstance(one, Read)
    return f"{one.process} reads {one.key}[:{len(one.found)}]"
