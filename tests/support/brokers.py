"""A broker for tests of its clients: ours, as a user's tests have it, or Apache Kafka, to prove the
tests right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import apache

SIDES = [pytest.param("kafka", marks=pytest.mark.java), "kafkalog"]
PLACES = [*SIDES, "inside"]
"""The sides, and our broker without a port."""
SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "2",
    "log.segment.delete.delay.ms": "1000",
    # The tests' records have timestamps of their own: retention in a long life would delete them.
    "log.retention.ms": "-1",
}


@contextlib.contextmanager
def running(side: str, directory: Path) -> Iterator[Any]:
    """`host:port` of one side's broker, or a store for `inside`: the address that a client takes.

    The broker ends with the block; skips where it cannot run.
    """
    if side != "kafka":
        from kafkalog import Store
        from kafkalog.testing.broker import SETTINGS as OURS
        from kafkalog.testing.broker import TestBroker

        config = {**SETTINGS, "kafkalog.durability": "os"}
        if side == "inside":
            with Store(directory, config={**OURS, **config}) as store:
                yield store
        else:
            with TestBroker(directory, config=config) as broker:
                yield broker.bootstrap_servers
        return
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    settings = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
    with apache.Broker(directory, settings, heap="256m") as kafka:
        yield kafka.bootstrap_servers
