"""A node's directory from its first start on, cut at each step: the states that may be left, and
the promises that they must keep."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalog import Broker, _native
from kafkalog.disk import layout
from kafkalog.errors import KafkalogError
from kafkalog.kraft.snapshots import read_snapshot
from tests.damage.enumerate.cuts import drawn
from tests.damage.enumerate.disk import Change, Disk, Files, Folder, Form, digest, parts
from tests.damage.enumerate.trace import Step, recording
from tests.support.effort import LONG

DATA = "data"
CONFIG = {"log.initial.task.delay.ms": 3_600_000}
METADATA = f"{layout.METADATA_TOPIC}-0"


class Promise(NamedTuple):
    """The content that must survive a cut."""

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


def first_record(mark: Callable[..., None], path: Path) -> Broker:
    """A first start, and the first record of its first topic."""
    broker = begin(mark, path)
    broker.store.create_topic("t")
    mark("topic")
    with broker.store.producer(acks="all") as producer:
        producer.send("t", b"value").result(30)
    mark("record")
    return broker


def recorded(root: Path, run: Callable[[Callable[..., None], Path], Broker]) -> list[Step]:
    """The steps of a node in a folder, until it is abandoned."""
    root.mkdir(exist_ok=True)
    steps: list[Step] = []
    with recording(_native.lib, steps) as recorder:
        run(recorder.mark, root / DATA).abandon()
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
