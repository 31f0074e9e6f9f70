"""Fixtures shared by the tests of the network side."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog._native import lib
from kafkalog.log.log import handle_of
from tests.unit.net.network import Server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., kafkalog.Log]]:
    """Make a server lead a partition of a new log."""
    logs = []

    def lead(server: Server, topic: str = "orders", durable: bool = False) -> kafkalog.Log:
        log = kafkalog.Log(tmp_path / f"{topic}-0")
        logs.append(log)
        server.reactor.put_topic(topic, uuid.uuid4())
        server.reactor.put_partition(handle_of(log), leader_epoch=0, durable=durable)
        return log

    yield lead
    for log in logs:
        log.close()


@pytest.fixture
def io() -> Iterator[object]:
    """The I/O table of the test build, reset after the test."""
    if not hasattr(lib, "kl_io_hold"):
        pytest.skip("only the test build has an I/O table that waits")
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()
