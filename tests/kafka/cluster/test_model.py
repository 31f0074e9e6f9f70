"""The simulation's ZooKeeper, and a real one: the same calls, the same answers."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from kafkalog.errors import ZooKeeperAway
from kafkalog.testing.zookeeper import Asking, Tree
from kafkalog.zookeeper.session import (
    Check,
    Create,
    Delete,
    Life,
    Seen,
    Session,
    Set,
    Timeouts,
)  # fmt: skip
from tests.support.effort import SEED, rounds
from tests.support.waiting import LIMIT_S
from tests.support.zookeeper import ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]
Asked = Session | Asking
NAMES = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1")
END = "/end"
TIMEOUT_MS = 20_000
ATTEMPTS = 5


Call = Callable[[Asked, Asked], Any]


def operation(dice: random.Random) -> Any:
    path = dice.choice(NAMES)
    version = dice.choice((-1, 0, 0, 1, 2))
    what = dice.random()
    if what < 0.45:
        return Create(path, b"%d" % dice.randrange(9), ephemeral=dice.random() < 0.2)
    if what < 0.55:
        return Create(f"{dice.choice(('/a', '/b'))}/n_", b"", sequence=True)
    if what < 0.75:
        return Set(path, b"%d" % dice.randrange(9), version)
    return Delete(path, version) if what < 0.9 else Check(path, version)


def script(dice: random.Random) -> Sequence[Call]:
    """Calls of two sessions: reads with and without watches, multis."""
    calls: list[Call] = [lambda one, _: one.commit([Create("/a"), Create("/b")])]
    for _ in range(60):
        calls.append(drawn_call(dice))
    return calls


def drawn_call(dice: random.Random) -> Call:
    what, path, watch = dice.random(), dice.choice(NAMES), dice.random() < 0.5
    if what < 0.2:
        return lambda one, _: one.read(path, watch)
    if what < 0.35:
        return lambda one, _: one.children(path, watch)
    if what < 0.4:
        return lambda one, _: one.ensure([path])
    multi = [operation(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
    by_other = dice.random() < 0.3
    return lambda one, two: (two if by_other else one).commit(multi)


def played(calls: Sequence[Call], make: Callable[[Any], Asked]) -> list[Any]:
    """The result of each call, the notifications, and the tree after the other session ended;
    numbers of transactions and sessions are replaced by their order."""
    told: queue.Queue[Any] = queue.Queue()
    one, two = make(told.put), make(lambda _: None)
    seen: list[Any] = []
    owners = {one.id: "one", two.id: "two"}

    def plain(found: Any) -> Any:
        if hasattr(found, "owner"):
            return found.data, found.version, owners.get(found.owner)
        return found

    def whole() -> dict[str, Any]:
        return {path: plain(znode) for path, znode in one.tree("/").items()
                if path.split("/")[1] in ("a", "b")}  # fmt: skip

    gave = []
    try:
        for call in calls:
            gave.append(plain(call(one, two)))
        gave.append(whole())
        epochs = [one.tree(path)[path].created for path in sorted(whole())]
        gave.append(sorted(range(len(epochs)), key=lambda at: epochs[at]))
        two.close()
        gave.append(whole())
        # Watches report in order: after the one for END nothing is left.
        one.read(END, watch=True)
        one.commit([Create(END)])
        while not seen or seen[-1] != Seen(END, children=False):
            seen.append(told.get(timeout=LIMIT_S))
        return [*gave, [found for found in seen if found is not Life.CONNECTED]]
    finally:
        one.close()
        two.close()


def undisturbed(calls: Sequence[Call], hosts: str) -> list[Any]:
    """The results of a real one over stable connections: a connection lost on a busy machine takes
    calls and watches with it, which makes it another script."""
    for attempt in range(ATTEMPTS):
        try:
            gave = played(
                calls, partial(Session, f"{hosts}/{attempt}", timeouts=Timeouts(TIMEOUT_MS))
            )
        except (ZooKeeperAway, queue.Empty):
            continue
        if not {Life.AWAY, Life.EXPIRED} & {one for one in gave[-1] if isinstance(one, Life)}:
            return gave
    raise AssertionError(f"no connection of {ATTEMPTS} held for a script")


def test_the_model_answers_as_zookeeper_does(zookeeper: ZooKeeper) -> None:
    """Drawn scripts: versions, conflicts, sequences, ephemeral znodes, watches."""
    for number in rounds(12):
        calls = script(random.Random(f"{SEED}-{number}"))
        model = played(calls, partial(Asking, Tree()))
        hosts = f"{zookeeper.hosts}/model/{number}"
        assert model == undisturbed(calls, hosts), f"script {number} of seed {SEED}"
