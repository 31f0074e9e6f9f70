"""Changes from several threads at once share one sync."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.errors import Closed, StorageOffline
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.metadata.image import Change
from kafkalog.metadata.requests import NewTopic, NewTopics, TopicNamed
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

Wait = Callable[..., None]
Results = Future[list[dict[str, Any]]]


@pytest.fixture
def io(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """The disk hooks, reset afterwards."""
    lib = native_test[1]
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[MetadataLog]:
    with (
        suppress(StorageOffline),
        Manager(tmp_path / "data") as manager,
        MetadataLog.open(manager) as opened,
    ):
        yield opened


def create(metadata: MetadataLog, *names: str) -> list[dict[str, Any]]:
    return metadata.create_topics(NewTopics([NewTopic(name, 1, 1) for name in names]))


def codes(found: Results) -> list[ErrorCode]:
    return [ErrorCode(result["error_code"]) for result in found.result(30)]


def waits(metadata: MetadataLog, count: int) -> Callable[[], bool]:
    """A condition: `count` changes wait for their turn."""
    return lambda: len(metadata._turns) == count


@contextmanager
def behind_one(
    metadata: MetadataLog, io: Any, wait_until: Wait, count: int
) -> Iterator[Callable[..., Results]]:
    """`ask(call, ...)`: request a change while another is being synced; `count` changes must wait
    before the disk continues."""
    with ThreadPoolExecutor(count + 1) as threads:
        io.kl_io_hold(b"fdatasync", 1)
        threads.submit(create, metadata, "first")
        wait_until(lambda: io.kl_io_waiting(b"fdatasync") == 1, "the first is being synced")
        yield threads.submit
        wait_until(waits(metadata, count), "the others wait")
        io.kl_io_hold(b"fdatasync", 0)


def test_waiting_changes_share_a_sync(metadata: MetadataLog, io: Any, wait_until: Wait) -> None:
    """Each gets its own result, in order of arrival; listeners get all changes at once."""
    heard: list[Change] = []
    metadata.listen(heard.append)
    before = io.kl_io_calls(b"fdatasync")
    with behind_one(metadata, io, wait_until, 3) as ask:
        asked = [ask(create, metadata, "a", "b")]
        wait_until(waits(metadata, 1), "it waits")
        asked += [ask(create, metadata, "b", "c")]
        wait_until(waits(metadata, 2), "it waits")
        asked += [ask(metadata.delete_topics, [TopicNamed("a", ZERO_UUID)])]
    found = [codes(one) for one in asked]
    exists, none = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE
    assert found == [[none, none], [exists, none], [none]]
    assert io.kl_io_calls(b"fdatasync") - before == 2
    assert set(metadata.image.topics) == {"first", "b", "c"}
    assert [[topic.name for topic in change.changed] for change in heard] == [["first"], ["b", "c"]]
    assert metadata.manager.has(TopicPartition("c", 0))
    assert not metadata.manager.has(TopicPartition("a", 0))


def test_a_sync_that_fails_fails_all_that_share_it(
    metadata: MetadataLog, io: Any, wait_until: Wait
) -> None:
    """Except for the request that had nothing to write."""
    with behind_one(metadata, io, wait_until, 3) as ask:
        asked = [ask(create, metadata, name) for name in ("a", "b")]
        nothing = ask(metadata.create_topics, NewTopics([NewTopic("c", 1, 1)], True))
        wait_until(waits(metadata, 3), "they wait")
        io.kl_io_fail(b"fdatasync", 1, errno.EIO, 1, 0)
    assert [codes(one) for one in asked] == [[ErrorCode.KAFKA_STORAGE_ERROR]] * 2
    assert codes(nothing) == [ErrorCode.NONE]
    assert set(metadata.image.topics) == {"first"}


def test_one_that_cannot_be_written_fails_alone(
    metadata: MetadataLog, io: Any, wait_until: Wait
) -> None:
    with behind_one(metadata, io, wait_until, 3) as ask:
        asked = []
        for name in ("a", "b", "c"):
            asked.append(ask(create, metadata, name))
            wait_until(waits(metadata, len(asked)), "it waits")
        io.kl_io_fail(b"pwrite", 3, errno.ENOSPC, 0, 0)  # after the writes of `first` and a
    found = [codes(one)[0] for one in asked]
    assert found == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert set(metadata.image.topics) == {"first", "a", "c"}


def test_a_folder_that_cannot_be_made_takes_back_its_own_topic(
    metadata: MetadataLog, io: Any, wait_until: Wait
) -> None:
    with behind_one(metadata, io, wait_until, 2) as ask:
        asked = [ask(create, metadata, "a")]
        wait_until(waits(metadata, 1), "it waits")
        asked += [ask(create, metadata, "b")]
        wait_until(waits(metadata, 2), "they wait")
        io.kl_io_fail(b"mkdirat", 2, errno.ENOSPC, 0, 0)  # after the folder of `first`
    assert codes(asked[1]) == [ErrorCode.NONE]
    assert codes(asked[0]) != [ErrorCode.NONE]
    assert set(metadata.image.topics) == {"first", "b"}


def test_a_topic_recreated_at_once_has_its_folder(
    metadata: MetadataLog, io: Any, wait_until: Wait
) -> None:
    create(metadata, "a")
    before = metadata.image.topics["a"].id
    with behind_one(metadata, io, wait_until, 2) as ask:
        asked = [ask(metadata.delete_topics, [TopicNamed("a", ZERO_UUID)])]
        wait_until(waits(metadata, 1), "it waits")
        asked += [ask(create, metadata, "a")]
    assert [codes(one) for one in asked] == [[ErrorCode.NONE]] * 2
    now = metadata.image.topics["a"].id
    assert now != before
    assert metadata.manager.topic_id("a") == now


def test_a_close_fails_waiting_changes(metadata: MetadataLog) -> None:
    metadata.close()
    with pytest.raises(Closed):
        create(metadata, "a")
