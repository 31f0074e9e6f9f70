"""How everything here is measured: rounds of several sides in turn, and their targets.

A row is one kind of work that two or more sides do: kafkalog, its rivals, the floor under all
of them.  Each round runs every side once, one after another, so that a slow spell of the
machine affects all of them.  A side's figure is the median of its rounds; a ratio is one of
medians, with the smallest and largest ratio of a single round as its spread.

Before its rounds a row with a JVM in it (`jvm=True`) warms each side until it is steady (warm.py);
any other row has one round of each side that does not count.  `cold` is for work that is only
done once, such as a start: it says in words why nothing is warmed.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from benchmarks.memory import made_ready
from benchmarks.warm import LIMIT_S, Warmth, warmed

__all__ = [
    "Part",
    "Row",
    "Side",
    "Verdict",
    "Want",
    "amount",
    "measured",
    "measured_together",
    "scaled",
    "verdicts",
]

SCALE = float(os.environ.get("KAFKALOG_BENCH_SCALE", "1"))
"""Below 1: less work per round, to check that the benchmarks run; figures mean nothing."""
BUDGET_S, ROUNDS_MIN = 20.0, 3
"""The time for a row's rounds: a slow row gets fewer of them, but at least ROUNDS_MIN."""


def scaled(count: int, least: int = 1) -> int:
    """`count` at full scale, less in a trial."""
    return max(least, int(count * SCALE))


@dataclass(frozen=True)
class Side:
    """One competitor of a row, and how it does the work.

    `run` does `count` of the row's units and is timed.  It gets what `setup` returned, if there
    is one, and so does `done` afterwards.  A `run` that returns a float has measured itself, in
    seconds (or in bytes, if the row is one of bytes).
    """

    name: str
    count: int
    run: Callable[..., object]
    setup: Callable[[], Any] | None = None
    done: Callable[[Any], object] | None = None

    def once(self, writes: int = 0) -> float:
        """One round that writes `writes` bytes: seconds, or what `run` returned."""
        given = (self.setup(),) if self.setup else ()
        made_ready(writes)
        gc.collect()
        start = time.perf_counter()
        result = self.run(*given)
        elapsed_s = time.perf_counter() - start
        if self.done and given:
            self.done(*given)
        return result if isinstance(result, float) else elapsed_s


@dataclass(frozen=True)
class Want:
    """A side's target: an absolute figure, or `factor` times as good as another."""

    of: str
    figure: float = 0.0
    """In the row's unit; the most if less is better, otherwise the least."""
    than: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Part:
    """One of several figures that the same runs give: each has its own row."""

    key: str
    work: str
    unit: str
    wants: Sequence[Want] = ()


@dataclass
class Row:
    """One kind of work and how each side did it."""

    key: str
    work: str
    unit: str
    """"s": seconds for each; "B": bytes; anything that ends in "/s": that many per second."""
    sides: dict[str, list[float]] = field(default_factory=dict)
    """A figure in `unit` for each round, by the name of the side."""
    wants: list[Want] = field(default_factory=list)
    about: str = ""
    """How this kind of work is measured."""
    load: float = 0.0
    """The average number of runnable processes in the minute before."""
    warmed: dict[str, Warmth] = field(default_factory=dict)
    """With a JVM: how each side was warmed."""
    cold: str = ""
    """Why no side was warmed."""

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s")

    def median(self, side: str) -> float:
        return statistics.median(self.sides[side])

    def ratio(self, side: str, than: str) -> tuple[float, float, float]:
        """How many times as good as `than`: of the medians, and the least and most of a round."""
        better = (lambda a, b: a / b) if self.more_is_better else (lambda a, b: b / a)
        pairs = [better(*two) for two in zip(self.sides[side], self.sides[than], strict=False)]
        return better(self.median(side), self.median(than)), min(pairs), max(pairs)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Row:
        wants = [Want(**want) for want in fields["wants"]]
        how = {name: Warmth(**one) for name, one in fields.get("warmed", {}).items()}
        return cls(**{**fields, "wants": wants, "warmed": how})


@dataclass(frozen=True)
class Verdict:
    """A target and what was found, as text."""

    want: Want
    wanted: str
    found: str
    reached: bool


def verdicts(row: Row) -> list[Verdict]:
    """The verdict on each target whose sides took part."""
    found = []
    for want in row.wants:
        if want.of not in row.sides or (want.than and want.than not in row.sides):
            continue
        if want.than:
            ratio, low, high = row.ratio(want.of, want.than)
            sign = ">" if want.factor == 1 else "≥"
            wanted = f"{want.of} {sign} {want.factor:g} × {want.than}"
            # 1 means ahead: equal is not enough.
            reached = ratio > 1 if want.factor == 1 else ratio >= want.factor
            found.append(Verdict(want, wanted, times((ratio, low, high)), reached))
            continue
        median = row.median(want.of)
        reached = median >= want.figure if row.more_is_better else median <= want.figure
        wanted = f"{want.of} {'≥' if row.more_is_better else '≤'} {amount(want.figure, row.unit)}"
        found.append(Verdict(want, wanted, amount(median, row.unit), reached))
    return found


def times(ratio: tuple[float, float, float]) -> str:
    """A ratio with its spread: `1.25 × (1.20 to 1.31)`."""
    middle, low, high = (f"{value:.{2 if value < 20 else 0}f}" for value in ratio)
    return f"{middle} × ({low} to {high})"


def amount(value: float, unit: str) -> str:
    """A figure of a row, to three digits: 1.23 M/s, 4.56 GB/s, 7.8 µs, 90 MB."""
    if unit == "s":
        for size, name in ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms")):
            if value < size:
                return f"{_three(value / size * 1000)} {name}"
        return f"{_three(value)} s"
    per = unit[1:] if unit.startswith("B") else unit
    base = "B" if unit.startswith("B") else ""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_three(value / size)} {letter}{base}{per}"
    return f"{_three(value)} {base}{per}"


def _three(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounds(most: int, round_s: float) -> int:
    """The number of rounds, by how long the round took that does not count."""
    if SCALE < 1:
        return min(most, 2)
    return max(min(most, ROUNDS_MIN), min(most, int(BUDGET_S / max(round_s, 1e-9))))


def _warm(
    rounds: Mapping[str, Callable[[], float]], jvm: bool, limit_s: float
) -> tuple[dict[str, Warmth], float]:
    """Warm the sides, each with its rounds; returns how, and the seconds of a round of all."""
    if jvm:
        limit_s = limit_s if SCALE >= 1 else 0.0  # a trial: two rounds
        how = {name: warmed(once, limit_s) for name, once in rounds.items()}
        return how, sum(one.seconds / one.rounds for one in how.values())
    begun_s = time.perf_counter()
    for once in rounds.values():
        once()
    return {}, time.perf_counter() - begun_s


def measured(
    benchmark: Any,
    key: str,
    work: str,
    sides: Sequence[Side],
    wants: Sequence[Want] = (),
    unit: str = "/s",
    rounds: int = 5,
    jvm: bool = False,
    cold: str = "",
    about: str = "",
    writes: int = 0,
) -> Row:
    """Run the sides in turn, up to `rounds` times; returns the row (also in the JSON).

    The first side is the one that pytest-benchmark shows.  `jvm`: a JVM takes part, so each side
    is warmed until it is steady; otherwise by one round.  `cold`: why no side is warmed.
    `about`: what a reader of the figures must know.  `writes`: about how many bytes a round puts
    into the page cache: memory for them is touched before (memory.py).
    """
    row = Row(key, work, unit, wants=list(wants), about=about, cold=cold, load=os.getloadavg()[0])
    row.sides = {side.name: [] for side in sides}
    first, *others = sides

    def figure(side: Side) -> float:
        result = side.once(writes)
        if unit == "B":
            return result
        return side.count / result if unit.endswith("/s") else result / side.count

    def rivals_first() -> None:
        for side in others:
            row.sides[side.name].append(figure(side))

    round_s = 0.0
    if not cold:
        order = {side.name: partial(figure, side) for side in (*others, first)}
        row.warmed, round_s = _warm(order, jvm, LIMIT_S)
    benchmark.pedantic(
        lambda: row.sides[first.name].append(figure(first)),
        setup=rivals_first,
        rounds=_rounds(rounds, round_s),
    )
    benchmark.extra_info["row"] = row.as_dict()
    return row


def measured_together(
    benchmark: Any,
    parts: Sequence[Part],
    sides: Mapping[str, Callable[[], Mapping[str, float]]],
    rounds: int = 5,
    jvm: bool = False,
    cold: str = "",
    about: str = "",
    writes: int = 0,
    warm_s: float = LIMIT_S,
) -> list[Row]:
    """Run the sides in turn, up to `rounds` times; returns a row for each part, also put into
    `benchmark`'s JSON.

    A side returns its figures by the keys of the parts, in their units, and leaves out those
    that it does not have.  It is warm by the first of them that it has, at the latest after
    `warm_s`.  The rest: as for measured.
    """
    load = os.getloadavg()[0]
    rows = [
        Row(
            part.key,
            part.work,
            part.unit,
            wants=list(part.wants),
            about=about,
            cold=cold,
            load=load,
        )
        for part in parts
    ]

    def round_of(name: str, counts: bool = True) -> float:
        gc.collect()
        made_ready(writes)
        found = sides[name]()
        for row in rows if counts else ():
            if row.key in found:
                row.sides.setdefault(name, []).append(found[row.key])
        return next(found[part.key] for part in parts if part.key in found)

    first, *others = sides

    def rivals_first() -> None:
        for name in others:
            round_of(name)

    how: dict[str, Warmth] = {}
    round_s = 0.0
    if not cold:
        order = {name: partial(round_of, name, False) for name in (*others, first)}
        how, round_s = _warm(order, jvm, warm_s)
    benchmark.pedantic(lambda: round_of(first), setup=rivals_first, rounds=_rounds(rounds, round_s))
    for row in rows:  # the first side is the one that others are compared with
        row.sides = {name: row.sides[name] for name in sides if name in row.sides}
        row.warmed = {name: how[name] for name in row.sides if name in how}
    benchmark.extra_info["rows"] = [row.as_dict() for row in rows]
    return rows
