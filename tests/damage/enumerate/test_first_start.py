"""A power cut at every step of the first start of a directory, and of the steps right after it.

Nothing waits for the disk before everything is written, so a cut may leave any part of it.  The
state left always starts: as the node that a client has seen, if that was possible, with everything
acknowledged; otherwise as a new node.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog import Broker, _native
from kafkalog.disk import layout
from kafkalog.errors import ArgumentError, CorruptLog, KafkalogError
from kafkalog.metadata.kraft.snapshots import read_snapshot
from tests.damage.enumerate.cuts import drawn
from tests.damage.enumerate.disk import Change, Disk, Files, Folder, Form, digest, parts
from tests.damage.enumerate.trace import Step, recording, renumbered
from tests.support.effort import LONG, examples

ROOT, DATA = "first-start", "data"
CONFIG = {"log.initial.task.delay.ms": 3_600_000}
DRAWN = 60
AGAIN = 6 if LONG else 2
CALLS = (b"fsync", b"fdatasync", b"syncfs")
METADATA = f"{layout.METADATA_TOPIC}-0"


class Promise(NamedTuple):
    """What must be there after a cut."""

    identity: tuple[str, ...] | None = None
    """The node's identity, once a client could have seen it."""
    topic: bool = False
    record: bool = False
    goes: bool = False
    """Its deletion was asked for."""
    gone: bool = False


def identity(broker: Broker) -> tuple[str, ...]:
    image, meta = broker._node.image, broker._node.manager.meta
    assert meta is not None and meta.directory_id is not None
    return image.cluster_id, str(image.node_id), layout.uuid_text(meta.directory_id)


def begin(mark: Callable[..., None], path: Path) -> Broker:
    broker = Broker(path, listeners=(), config=CONFIG)
    mark("seen", *identity(broker))
    return broker


def live(mark: Callable[..., None], path: Path) -> None:
    """A first start, and the first record of its first topic."""
    broker = begin(mark, path)
    broker.store.create_topic("t")
    mark("topic")
    with broker.store.producer(acks="all") as producer:
        producer.send("t", b"value").result(30)
        mark("record")
        broker.abandon()


def recorded(root: Path, run: Callable[[Callable[..., None], Path], object]) -> list[Step]:
    steps: list[Step] = []
    with recording(_native.lib, steps) as recorder:
        broker = run(recorder.mark, root / DATA)
        if isinstance(broker, Broker):
            broker.abandon()
    return steps


def promises(steps: Sequence[Step]) -> list[Promise]:
    """The promise after each step."""
    found, now = [], Promise()
    for step in steps:
        if step.mark[:1] == ("seen",):
            now = now._replace(identity=tuple(step.mark[1:]))
        elif step.mark:
            now = now._replace(**{step.mark[0]: True})
        found.append(now)
    return found


class Cuts:
    """The states that may be left of a trace, and whether they keep its promises."""

    def __init__(self, place: Path, root: Path, steps: list[Step], image: Files) -> None:
        place.mkdir()
        self._folder, self._path = Folder(place), place / DATA
        self._root, self._steps, self._image = root, steps, image
        self._judged: dict[tuple[int, Promise], str | None] = {}

    @property
    def states(self) -> int:
        return len(self._judged)

    def moments(self) -> Iterator[tuple[Step, Promise, Disk, bool]]:
        """The disk before each step that makes something durable or promises it, and at the end;
        whether nothing was durable yet."""
        disk, before, synced = Disk(self._root), Promise(), False
        disk.load(self._image)
        for step, promise in zip(self._steps, promises(self._steps), strict=True):
            if step.syncs or step.mark:
                yield step, before, disk, not synced
            synced |= step.syncs
            disk.replay(step)
            before = promise
        yield self._steps[-1], before, disk, False

    def check(self, rng: random.Random, count: int, seen: bool = False) -> None:
        """Judge each simple cut, and `count` drawn ones; `seen`: only once a client could have seen
        the node."""
        first = True
        for step, promise, disk, nothing in self.moments():
            if seen and promise.identity is None:
                continue
            pending = disk.pending
            for forms in _simple(pending, torn=first and nothing and step.syncs):
                self.judge(step, promise, disk, forms)
            first = first and not step.syncs
            for _ in range(count // 10 if len(pending) > 1 else 0):
                self.judge(step, promise, disk, drawn(pending, rng))

    def judge(self, step: Step, promise: Promise, disk: Disk, forms: list[Form]) -> None:
        image = disk.image(forms)
        key = digest(image), promise
        if key not in self._judged:
            self._judged[key] = self._problem(image, promise)
        problem = self._judged[key]
        lost = [
            f"{'lost' if form is False else form}: {self._steps[change.step]}"
            for change, form in zip(disk.pending, forms, strict=True) if form is not True
        ]  # fmt: skip
        assert problem is None, "\n".join([f"a cut before {step}: {problem}", *lost])

    def _problem(self, files: Files, promise: Promise) -> str | None:
        self._folder.put(files)
        try:
            broker = Broker(self._path, listeners=(), config=CONFIG)
        except Exception as error:
            return f"does not start: {error!r}"
        try:
            return self._kept(broker, promise) or self._whole(identity(broker))
        except (KafkalogError, OSError, ValueError) as error:
            return f"starts, then fails: {error!r}"
        finally:
            broker.abandon()

    def _kept(self, broker: Broker, promise: Promise) -> str | None:
        found = identity(broker)
        if promise.identity not in (None, found):
            return f"is {found}, was seen as {promise.identity}"
        topics = tuple(broker.store.topics)
        if promise.topic and topics != ("t",):
            return f"has the topics {topics}"
        if promise.record and [r.value for r in broker.store["t"][0].read()] != [b"value"]:
            return "lost an acknowledged record"
        return None

    def _whole(self, now: tuple[str, ...]) -> str | None:
        """Check that the files are complete for Kafka, and for our next start."""
        meta = layout.parse_meta_properties((self._path / layout.META_PROPERTIES).read_bytes())
        assert meta.directory_id is not None
        if (meta.cluster_id, str(meta.node_id), layout.uuid_text(meta.directory_id)) != now:
            return f"meta.properties says {meta}"
        if (self._path / layout.BOOTSTRAP).exists():  # Kafka does not need it
            read_snapshot(str(self._path / layout.BOOTSTRAP))
        inside = self._path / METADATA
        layout.parse_partition_metadata((inside / layout.PARTITION_METADATA).read_bytes())
        json.loads((inside / "quorum-state").read_bytes())
        return None

    def again(self, rng: random.Random) -> tuple[list[Step], Files]:
        """A start after a drawn cut before anything was durable."""
        for step, _, disk, nothing in self.moments():
            if step.syncs and nothing:
                image = disk.image(drawn(disk.pending, rng))
                self._folder.put(image)
                return recorded(self._path.parent, begin), image
        raise AssertionError("nothing was ever synced")


def _simple(pending: Sequence[Change], torn: bool) -> Iterator[list[Form]]:
    """Prefixes, each change alone left out or kept, each write torn while all else is kept or
    lost."""
    count = len(pending)
    for kept in range(count + 1):
        yield [i < kept for i in range(count)]
    for one in range(count):
        yield [i != one for i in range(count)]
        yield [i == one for i in range(count)]
    for one, change in enumerate(pending) if torn else ():
        for part in parts(change, fine=LONG):
            yield [part if i == one else True for i in range(count)]
            yield [part if i == one else False for i in range(count)]


@pytest.fixture(scope="module")
def trace(native_test: Any, memory: Path) -> tuple[list[Step], Path]:
    root = memory / ROOT
    root.mkdir()
    return recorded(root, live), root


@pytest.mark.explore
@pytest.mark.timeout(300)
def test_every_power_cut_of_a_first_start_leaves_what_starts(
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
def test_what_somebody_has_used_is_never_made_anew(tmp_path: Path, life: str, damage: str) -> None:
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
