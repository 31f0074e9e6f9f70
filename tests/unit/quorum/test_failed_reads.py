"""Reads of committed metadata that fail, and pass."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.kraft.loading import Loaded
from kafkalog.quorum.replica import controller_thread
from kafkalog.quorum.replica.replica import MetadataReplica
from kafkalog.wire import apis
from tests.support.quorums import CLUSTER, Replicas, directory
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_thread, "READ_S", 0.02)


@pytest.fixture
def disk(native_test: Any) -> Iterator[Any]:
    hooks = native_test[1]
    hooks.kl_io_reset()
    yield hooks
    hooks.kl_io_reset()


def register(replica: MetadataReplica, broker: int, answered: list[Any]) -> None:
    """A broker registers with the active controller; its answer comes later."""
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "security_protocol": 0}
    feature = {"name": "metadata.version", "min_supported_version": 7,
               "max_supported_version": 30}  # fmt: skip
    fields = {
        "broker_id": broker, "cluster_id": CLUSTER, "incarnation_id": directory(broker),
        "listeners": [listener], "features": [feature], "rack": None,
        "log_dirs": [directory(100 + broker)], "is_migrating_zk_broker": False,
    }  # fmt: skip
    api = apis.BROKER_REGISTRATION
    version = api.versions.stop - 1
    request = api.decode_request(version, api.encode_request(version, fields))
    replica.ask(api, request, version, answered.append)


@pytest.mark.parametrize("wrong", [errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_a_controller_repeats_a_read_that_failed(tmp_path: Path, disk: Any, wrong: int) -> None:
    """It goes on to lead, with the metadata that it has."""
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        before, answered = quorum[1].image, list[Any]()
        disk.kl_io_reset()  # counts from here on
        disk.kl_io_fail(b"pread", 1, wrong, 1, 0)
        register(quorum[1], 7, answered)
        wait_for(lambda: disk.kl_io_calls(b"pread") > 5, "it was read again and again")
        assert quorum[1].is_active and quorum[1].problem is None
        assert quorum[1].image is before and not answered
        disk.kl_io_reset()
        wait_for(lambda: answered, "the broker has its answer")
        assert not answered[0]["error_code"]
        assert 7 in quorum[1].image.brokers and quorum[1].problem is None


def test_a_disk_that_failed_a_write_back_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()

        def take(*_: object) -> None:
            raise errors.StorageOffline(errno.EIO, "a write-back failed")

        monkeypatch.setattr(Loaded, "take", take)
        register(quorum[1], 7, [])
        wait_for(lambda: isinstance(quorum[1].broken, errors.StorageOffline), "it is broken")


def test_records_that_were_applied_in_part_are_applied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out: all is read again, and listeners hear only of what is new."""
    take, left = Loaded.take, [2]

    def takes(loaded: Loaded, raws: Any, *more: Any) -> None:
        raws = list(raws)
        if left[0] and raws[0].control is None:
            left[0] -= 1
            take(loaded, raws[:1], *more)
            raise MemoryError
        take(loaded, raws, *more)

    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        answered, heard = list[Any](), list[Any]()
        register(quorum[1], 6, answered)
        wait_for(lambda: answered, "the broker has its answer")
        quorum[1].listen(heard.append)
        monkeypatch.setattr(Loaded, "take", takes)
        register(quorum[1], 7, answered)
        wait_for(lambda: len(answered) == 2, "the broker has its answer")
        assert left == [0] and {*quorum[1].image.brokers} == {6, 7}
        assert quorum[1].is_active and quorum[1].problem is None
        assert heard[-1].new is quorum[1].image
        for one, later in pairwise(heard):
            assert later.old is one.new
