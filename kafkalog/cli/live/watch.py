"""A cluster that is sampled again and again: its last view, and the history."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cli.common import CommandError
from kafkalog.errors import Closed
from kafkalog.watch.history import History
from kafkalog.watch.sample import CLUSTER, Sample
from kafkalog.watch.sampler import Sampler
from kafkalog.watch.view import LagView, PartitionView, State, View, advance, lags_of, partitions_of

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin

__all__ = ["Scope", "Watch"]


class Scope(NamedTuple):
    """The groups that are watched; empty: all."""

    names: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def cut(self, view: View) -> View:
        """The view with these groups only."""
        groups = tuple(
            one for one in view.groups
            if (not self.names or one.name in self.names)
            and (not self.kinds or one.kind in self.kinds)
        )  # fmt: skip
        lag = sum(one.lag or 0 for one in groups)
        return view._replace(
            groups=groups, totals=view.totals._replace(groups=len(groups), lag=lag)
        )


class Watch:
    """One cluster.  `step` is for one thread; what it left may be read by others."""

    def __init__(self, admin: Admin, scope: Scope = Scope()) -> None:  # noqa: B008
        """Nothing is asked yet.  `admin` stays its owner's."""
        self._scope = scope
        self._sampler = Sampler(admin)
        self._state = State()
        self._sample: Sample | None = None
        self.history = History()
        self.topics: Collection[str] = ()
        """The visible topics, set by those who show them."""
        self.groups: Collection[str] = ()
        """The visible groups."""
        self._ends = threading.Event()

    def first(self) -> View:
        """As `step`.  Raises: CommandError: no broker answers, or a group is not there."""
        view = self.step()
        if not view.cluster_id and CLUSTER in view.problems:
            raise CommandError(view.problems[CLUSTER])
        for name in sorted(self._scope.names.difference(one.name for one in view.groups)):
            raise CommandError(f"no group {name!r}")
        return view

    def step(self) -> View:
        """Sample once."""
        groups = list(dict.fromkeys((*self._scope.names, *self.groups)))
        sample = self._sampler.sample(list(self.topics), groups)
        self._state, view = advance(self._state, sample)
        self._sample = sample
        view = self._scope.cut(view)
        self.history.add(view)
        return view

    def run(self, interval_s: Callable[[], float], show: Callable[[View], object]) -> None:
        """Sample until `end`, or until the Admin is closed."""
        with contextlib.suppress(Closed):
            while not self._ends.wait(interval_s()):
                view = self.step()
                if not self._ends.is_set():
                    show(view)

    def end(self) -> None:
        """Let `run` return, once its request is answered."""
        self._ends.set()

    def partitions(self, topic: str) -> list[PartitionView]:
        """The partitions of a topic, by the last sample."""
        return [] if self._sample is None else partitions_of(self._state, self._sample, topic)

    def lags(self, group: str) -> list[LagView]:
        """The partitions of a group, by the last sample."""
        return [] if self._sample is None else lags_of(self._state, self._sample, group)
