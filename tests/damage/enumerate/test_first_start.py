"""A power cut at every step of the first start of a directory, and of the steps right after it.

Nothing waits for the disk before everything is written, so a cut may leave any part of it.  The
state left always starts: as the node that a client has seen, if that was possible, with everything
acknowledged; otherwise as a new node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Broker
from kafkalog.disk import layout
from kafkalog.errors import ArgumentError, CorruptLog
from tests.damage.enumerate.starts import CONFIG, DATA, Cuts, first_record, identity, recorded
from tests.damage.enumerate.trace import Step, renumbered
from tests.support.effort import LONG, examples

ROOT = "first-start"
DRAWN = 60
AGAIN = 6 if LONG else 2
CALLS = (b"fsync", b"fdatasync", b"syncfs")


@pytest.fixture(scope="module")
def trace(native_test: Any, memory: Path) -> tuple[list[Step], Path]:
    return recorded(memory / ROOT, first_record), memory / ROOT


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(300)
def test_a_directory_starts_after_every_power_cut_of_its_first_start(
    trace: tuple[list[Step], Path], memory: Path, rng: random.Random
) -> None:
    steps, root = trace
    cuts = Cuts(memory / "cut-of-first-start", root, steps, {})
    cuts.check(rng, examples(DRAWN))
    print(f"{len(steps)} steps, {cuts.states} different states")
    assert cuts.states > 150
    for number in range(AGAIN):
        again = Cuts(memory / f"again-{number}", memory / "cut-of-first-start", *cuts.again(rng))
        again.check(rng, 0)


@pytest.mark.parametrize("forgotten", [ROOT, DATA, "meta.properties"])
def test_a_sync_that_is_left_out_is_found(
    trace: tuple[list[Step], Path], memory: Path, rng: random.Random, forgotten: str
) -> None:
    """The sync of the folder's own name, of the names in it, of its files."""
    steps, root = trace
    left = [step for step in steps if not (step.syncs and step.name == forgotten)]
    assert len(left) < len(steps)
    cuts = Cuts(memory / f"without-{forgotten}", root, renumbered(left), {})
    with pytest.raises(AssertionError, match="was seen as"):
        cuts.check(rng, 0, seen=True)


@pytest.fixture
def held(native_test: Any) -> Iterator[Any]:
    """The test build's library; every sync blocks until it is released."""
    lib = native_test[1]
    lib.kl_io_reset()
    for call in CALLS:
        lib.kl_io_hold(call, 1)
    yield lib
    lib.kl_io_reset()


def test_a_first_start_waits_for_the_disk_once(
    held: Any, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """All syncs are in flight at the same time, and nothing is synced twice."""
    wanted = 10
    """The new folder's name, and its own names; meta.properties, bootstrap.checkpoint, the recovery
    point, quorum-state; of the metadata log its segment, epochs, topic id and names."""
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(Broker, tmp_path / DATA, listeners=(), config=CONFIG)
        wait_until(lambda: sum(map(held.kl_io_waiting, CALLS)) == wanted, "all are in flight")
        for call in CALLS:
            held.kl_io_hold(call, 0)
        with begun.result():
            assert sum(map(held.kl_io_calls, CALLS)) == wanted


# ---- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["empty", "zeros", "cut off", "missing"])
@pytest.mark.parametrize("life", ["served", "topic", "closed"])
def test_a_used_directory_is_never_created_again(tmp_path: Path, life: str, damage: str) -> None:
    """Damage, not a power cut, destroyed its identity: the error says so, and nothing changes."""
    path = tmp_path / DATA
    broker = Broker(path, listeners=(), config=CONFIG)
    if life == "topic":
        broker.store.create_topic("t")
    if life == "closed":
        broker.close()
    else:
        broker.abandon()
    meta = path / layout.META_PROPERTIES
    whole = meta.read_bytes()
    if damage == "missing":
        meta.unlink()
    else:
        torn = {"empty": b"", "zeros": bytes(len(whole)), "cut off": whole[:40]}
        meta.write_bytes(torn[damage])
    before = {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises((CorruptLog, ArgumentError), match=r"meta\.properties"):
        Broker(path, listeners=(), config=CONFIG)
    found = {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found.pop(str(path / ".lock"), None)
    before.pop(str(path / ".lock"), None)
    assert found == before


@pytest.mark.parametrize("order", ["node.id=7\nversion=1", "version=1\nnode.id=7\n"])
def test_an_identity_that_was_written_by_hand_is_kept(tmp_path: Path, order: str) -> None:
    """It begins as ours does, and is complete."""
    path = tmp_path / DATA
    path.mkdir()
    text = f"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n{order}"
    (path / layout.META_PROPERTIES).write_text(text)
    with Broker(path, listeners=(), config={**CONFIG, "node.id": 7}) as broker:
        assert identity(broker)[:2] == ("MkU3OEVBNTcwNTJENDM2Qg", "7")


def test_a_formatted_directory_keeps_its_identity(tmp_path: Path) -> None:
    """As Kafka's own tool leaves it: with an identity, but never used."""
    path = tmp_path / DATA
    path.mkdir()
    text = "#\n#Mon Nov 23 01:00:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    text += "node.id=7\nversion=1\n"
    (path / layout.META_PROPERTIES).write_text(text)
    with Broker(path, listeners=(), config={**CONFIG, "node.id": 7}) as broker:
        assert identity(broker)[:2] == ("MkU3OEVBNTcwNTJENDM2Qg", "7")
    (path / layout.META_PROPERTIES).write_text(text[:60])
    with pytest.raises(CorruptLog, match=r"meta\.properties"):
        Broker(path, listeners=(), config=CONFIG)
