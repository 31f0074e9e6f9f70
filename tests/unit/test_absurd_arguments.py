"""Wrong arguments for what is neither a Log nor a client: directories, stores, asyncio, batches.

The tests in `tests/unit/log`, `client` and `server` do the same for the rest.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import aio
from kafkalog.arguments import INT64_MAX
from kafkalog.batch.columns import Columns
from kafkalog.batch.control import control_key, marker_batch
from kafkalog.batch.encode import (
    HEADER_BYTES,
    one_batch,
    placed,
    rows_batch,
    target_codec,
)
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.manager import Manager
from kafkalog.errors import ArgumentError, KafkalogError
from kafkalog.store import Store
from kafkalog.types import TopicPartition
from tests.unit.log import test_absurd_arguments as absurd

ABSURD: list[Any] = [
    *absurd.ABSURD, float("inf"), INT64_MAX + 1, "", "a/b", "..", "a\nb", "\0", "x" * 70_000,
    Path("x"), slice(None), {"x": object()}, {None: None},
]  # fmt: skip
TP = TopicPartition("t", 0)
PATIENCE_S = 30


@pytest.fixture(autouse=True)
def all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set the values to try, and the folder in which a relative path would be created."""
    monkeypatch.setattr(absurd, "ABSURD", ABSURD)
    monkeypatch.chdir(tmp_path)


def named(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that can be passed by name, without `self`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    every = inspect.signature(function).parameters.values()
    return [one for one in every if one.kind in kinds and one.name != "self"]


def methods(kind: type, skipped: set[str]) -> Iterator[str]:
    """The public methods of a class."""
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in skipped:
            yield name


def told(problems: Iterator[str]) -> list[str]:
    """Each one cut short."""
    return [problem[:300] for problem in problems]


# ---- directories -----------------------------------------------------------------------------

ENDS = {"close", "abandon", "release", "shared"}
FOR_ITS_OWN = {
    "use", "lend", "handle", "has", "make", "delete_partitions",
    "opened", "closing", "gone", "closed", "every",
}  # fmt: skip
"""Called only by a broker, its metadata and its logs, with partitions that they know."""
RIGHT = {"topic": "t", "partition": 0}


@pytest.mark.parametrize("name", list(methods(Manager, ENDS | FOR_ITS_OWN)))
def test_wrong_arguments_of_a_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each is refused with a KafkalogError, or succeeds; afterwards the directory has only what was
    created, under its name, and it closes and opens again."""
    for key, value in RIGHT.items():
        monkeypatch.setitem(absurd.RIGHT, key, value)
    with Manager(tmp_path / "d") as manager:
        manager.create_topic("t")
        method = getattr(manager, name)
        assert told(absurd.raw_errors(method, name, named(method))) == []
        there = manager.partitions()
    with Manager(tmp_path / "d") as again:
        assert again.partitions() == there
        for topic, partition in there:
            assert isinstance(topic, str)
            assert type(partition) is int
            again.get(topic, partition).append(b"x")


@pytest.mark.parametrize("threads", [float("nan"), 0, -1, "2", None, 1 << 40])
def test_recovering_with_an_absurd_number_of_threads(tmp_path: Path, threads: Any) -> None:
    """nan must be refused: it would start no thread, and the call would wait forever."""
    with Manager(tmp_path / "d") as manager:
        manager.create_topic("t", 2)
        if threads is None:
            assert len(manager.recover_all(threads)) == 2
            return
        with pytest.raises(ArgumentError, match=r"threads: found .*, wanted"):
            manager.recover_all(threads)


# ---- stores ------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s") as made:
        made.create_topic("t")
        yield made


def test_wrong_arguments_of_a_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for its subscript."""
    monkeypatch.setitem(absurd.RIGHT, "name", "none")
    monkeypatch.setitem(absurd.RIGHT, "topic", "t")
    for name in (*methods(Store, {"close", "producer", "consumer"}), "__getitem__"):
        method = getattr(store, name)
        assert told(absurd.raw_errors(method, name, named(method))) == []
    for wrong in ABSURD:
        assert wrong not in store  # "x" was created and deleted on the way
    assert store["t"][0].append(b"x") == 0


def test_subscripts_of_a_topic(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is a sequence of partitions: a wrong number raises a sequence's error and ours."""
    monkeypatch.setitem(absurd.RIGHT, "partition", 0)
    topic = store["t"]
    assert told(absurd.raw_errors(topic.__getitem__, "[]", named(topic.__getitem__))) == []
    for wrong in (None, 0.0, float("nan"), "0", slice(0, 1), 1 << 70):
        with pytest.raises(ArgumentError, match="partition: found"):
            topic[wrong]
    for missing in (-1, 1, INT64_MAX):
        with pytest.raises(IndexError, match="has no partition"):
            topic[missing]
    (log,) = reversed(topic)
    assert topic.index(log) == 0
    with pytest.raises(ValueError, match=r"^$"):
        topic.index(None)  # type: ignore[arg-type]


def test_a_topic_has_the_partitions_that_were_made(store: Store) -> None:
    assert len(store.create_topic("default", -1)) == 1
    assert len(store.create_topic("three", 3)) == 3


# ---- consumers and asyncio ---------------------------------------------------------------------


def test_wrong_arguments_of_subscribe(store: Store) -> None:
    """A refused call does not change the subscription."""
    with store.consumer() as consumer:
        consumer.subscribe(["t"])
        method = consumer.subscribe
        for one in named(method):
            for wrong in ABSURD:
                try:
                    method(**{one.name: wrong})
                except KafkalogError:
                    assert consumer.subscription == ["t"]
                consumer.subscribe(["t"])
        for word in ("on_assigned", "on_revoked", "on_lost"):
            with pytest.raises(
                ArgumentError, match=f"{word}: found 5 of type int, wanted a function"
            ):
                consumer.subscribe(["t"], **{word: 5})


WAITS = {"close", "flush", "transaction", "wakeup"}
ONE: dict[str, Any] = {
    "topic": "t", "value": b"v", "values": [b"v"], "tp": TP, "offset": 0, "partitions": [TP],
    "times_ms": {TP: 0}, "offsets": {TP: 0}, "group": "g", "batches": b"",
}  # fmt: skip


async def of_asyncio(above: Any, name: str, arguments: dict[str, Any]) -> str | None:
    """The error of a call unless it is a KafkalogError; every call must end."""
    try:
        await asyncio.wait_for(getattr(above, name)(**arguments), PATIENCE_S)
    except KafkalogError:
        return None
    except BaseException as error:
        return f"{name}({str(arguments)[:100]}): {type(error).__name__}: {error}"[:300]
    return None


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_wrong_arguments_of_asyncio(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As for the blocking clients; with a timeout of nan a poll must still end."""
    monkeypatch.setattr("kafkalog.client.link.cluster.UNKNOWN_TOPIC_MS", 1)
    how = {"max_block_ms": 100} if kind == "Producer" else {"group": "g", "auto_commit": False}

    async def all_calls() -> list[str]:
        raw: list[str | None] = []
        async with getattr(aio, kind)(store, **how) as above:
            if kind == "Consumer":
                await above.assign([TP])
            for name in methods(type(above), WAITS):
                parameters = named(getattr(above, name))
                needed = {p.name: ONE[p.name] for p in parameters if p.default is p.empty}
                for one in parameters:
                    for wrong in ABSURD:
                        if one.name == "timeout_ms" and wrong in (
                            None, 1 << 70, INT64_MAX + 1, float("inf")
                        ):  # fmt: skip
                            continue  # the test does not wait that long
                        raw.append(await of_asyncio(above, name, {**needed, one.name: wrong}))
            if kind == "Consumer":
                await above.unsubscribe()
                await above.assign([TP])
                assert await above.position(TP) >= 0
        return [line for line in raw if line is not None]

    assert asyncio.run(all_calls()) == []


# ---- batches -----------------------------------------------------------------------------------

CONFIG = TopicConfig()
BATCH = rows_batch([(None, b"v")], 1)
BATCHES: dict[Callable[..., Any], dict[str, Any]] = {
    control_key: {"kind": 0},
    marker_batch: {"producer_id": 1, "epoch": 0, "commit": True, "coordinator_epoch": 0,
                   "now_ms": 1},
    placed: {"batch": BATCH, "offset": 0, "epoch": 0},
    rows_batch: {"rows": [(b"k", b"v")], "timestamp_ms": 1, "producer_id": 1, "epoch": 0,
                 "attributes": 0},
    target_codec: {"config": CONFIG, "asked": "none"},
}  # fmt: skip


@pytest.mark.parametrize("function", BATCHES, ids=lambda function: function.__name__)
def test_wrong_arguments_of_batches(function: Callable[..., Any]) -> None:
    """Numbers that do not fit their field, and invalid rows."""
    right = BATCHES[function]
    raw = []
    for name in right:
        if name == "config":
            continue
        for wrong in (*ABSURD, 0, 1, HEADER_BYTES, 1 << 15, 1 << 31, -(1 << 31) - 1):
            try:
                function(**{**right, name: wrong})
            except KafkalogError:
                continue
            except Exception as error:
                raw.append(f"{name}={wrong!r:.100}: {type(error).__name__}: {error}")
    assert raw == []


def test_an_absurd_batch_is_none() -> None:
    for codec in (-1, 5, 99):
        with pytest.raises(KafkalogError):
            one_batch(Columns([b"v" * 1_000]), codec, CONFIG)
