"""The common parts of simulations: drawn faults, runs that report their seed, planted mistakes.

A simulation adds to a world (kafkalog.simulate.world) its actors, its faults, what must hold, and a
function that plays a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, TypeVar

import pytest

from kafkalog.simulate import world
from kafkalog.simulate.world import Violated
from tests.support.effort import SEED, rounds

__all__ = ["Faults", "World", "drawn", "finds", "runs", "simulation"]

TRACED = 60
"""The last lines of a trace that a failure shows."""
FINDING = 100
"""Runs in which a planted mistake is found."""
F = TypeVar("F", bound="Faults")
W = TypeVar("W", bound=world.World)


def drawn(*choices: float, calm: float | None = None) -> Any:
    """A field of Faults: a run has one of these; without faults it is `calm`, or the first one."""
    return field(default=choices[0] if calm is None else calm, metadata={"choices": choices})


@dataclass
class Faults:
    """How often each fault happens, mostly as a probability.  A simulation lists its own in a
    subclass; made without arguments, there are none."""

    delay_ms: int = drawn(2, 20, 200)
    """A message takes at most this long."""

    @classmethod
    def draw(cls: type[F], rng: Random, never: tuple[str, ...] = ()) -> F:
        """The faults of a run, drawn in the order of the fields; `never`: not drawn."""
        found = cls()
        for one in fields(cls):
            some = one.metadata.get("choices", ())
            if some and one.name not in never:
                setattr(found, one.name, rng.choice(some) if len(some) > 1 else some[0])
        return found


class World(world.World):
    """A world in whole milliseconds, which has faults for a while."""

    now_ms: int
    faults = Faults()

    def travel_ms(self) -> int:
        """How long a message takes."""
        return self.rng.randint(0, self.faults.delay_ms)

    def settle(self, rule: str, ms: int, missing: Callable[[], Any]) -> None:
        """Run until nothing is missing.  Raises: Violated: after that time something still is."""
        self.run(self.now_ms + ms, lambda: not missing())
        if found := missing():
            raise Violated(f"{rule}: after {ms} ms: {found}")


def simulation(make: Callable[..., W], *parts: Callable[[W], object]) -> Callable[..., W]:
    """Returns a function of a seed: it makes a world and plays the parts of a run in it.  That
    raises Violated, with the seed and the last events."""

    def simulate(seed: int | str, *more: Any) -> W:
        made = make(seed, *more)
        try:
            for part in parts:
                part(made)
        except AssertionError as error:
            last = "\n".join(made.trace[-TRACED:])
            raise Violated(f"seed {seed}: {error}\n{last}") from error
        return made

    return simulate


def runs(simulate: Callable[[int], W], count: int, part: int = 0, parts: int = 1) -> Iterator[W]:
    """The worlds of `count` runs, or of as many as a search has time for; `part`: of a search that
    is divided."""
    for number in rounds(count):
        yield simulate(SEED + number * parts + part)


def finds(
    simulate: Callable[[int], object], plant: Callable[[pytest.MonkeyPatch], None],
    patch: pytest.MonkeyPatch, first: int = 0, rule: str | None = None,
) -> None:  # fmt: skip
    """Check that a planted mistake breaks a rule within a few runs, the first of which has the seed
    `first`: always the same runs."""
    plant(patch)
    with pytest.raises(Violated, match=rule):
        for seed in range(first, first + FINDING):
            simulate(seed)
