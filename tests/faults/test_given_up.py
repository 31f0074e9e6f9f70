"""A request that a client gave up, and the network still holds, ends no later transaction."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkalog
from kafkalog.types import TopicPartition
from tests.faults import network
from tests.faults.members import Member
from tests.faults.network import Network
from tests.support import apache
from tests.support.waiting import wait_for

PORT = 9092
TP = TopicPartition("t", 0)
ESTABLISHED, TIME_WAIT = 1, 6


class Broker(Member):
    """A separate broker with transactions of version 1, where no end raises the epoch."""

    def begin(self, wait: bool = True) -> None:
        data, address = self.folder / "data", f"{self.host.address}:{PORT}"
        serve = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(data), "--listen", address]
        self.start(serve, Path(os.getcwd()), lambda: not wait or apache.answers(address))
        feature = ["features", "downgrade", "transaction.version=1", "--bootstrap-server", address]
        subprocess.run([sys.executable, "-m", "kafkalog", *feature], check=True)


@pytest.fixture
def hosts() -> Iterator[Network]:
    if reason := network.why_not():
        pytest.skip(reason)
    with Network() as made:
        yield made


@pytest.fixture
def broker(hosts: Network, tmp_path: Path) -> Iterator[Broker]:
    made = Broker(hosts.host("one"), tmp_path / "one")
    try:
        made.begin()
        yield made
    finally:
        if made.lives:
            made.kill()


def connections(address: str) -> dict[int, int]:
    """This machine's connections to a host: local port -> state."""
    raw = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    there = f"{raw:08X}:{PORT:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16): int(row[3], 16) for row in rows if row[2] == there}


@pytest.mark.slow
def test_an_end_that_comes_late_does_not_end_the_next_transaction(
    hosts: Network, broker: Broker
) -> None:
    """The request times out while the way to the coordinator is cut; then the way is restored."""
    place = f"{broker.host.address}:{PORT}"
    with ThreadPoolExecutor(1) as pool, kafkalog.Admin(place) as admin:
        admin.create_topic("t", 1)
        producer = kafkalog.Producer(
            place, transactional_id="one", request_timeout_ms=3_000, linger_ms=0
        )
        with producer, kafkalog.Consumer(place, isolation="read_committed") as reader:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"first", partition=0).result(60)
            before = connections(broker.host.address)
            broker.host.hears([f"{hosts.prefix}.1"])
            committing = pool.submit(producer.commit_transaction)
            wait_for(
                lambda: any(
                    connections(broker.host.address).get(port) != state
                    for port, state in before.items()
                ),
                "it gives up",
            )
            broker.host.hears()
            committing.result(60)
            producer.begin_transaction()
            second = producer.send("t", b"second", partition=0).result(60)
            wait_for(
                lambda: set(connections(broker.host.address).values()) <= {ESTABLISHED, TIME_WAIT},
                "the request that was given up has arrived, or never will",
            )
            assert reader.end_offsets([TP]) == {TP: second.offset}
            producer.commit_transaction()
            wait_for(lambda: reader.end_offsets([TP])[TP] > second.offset, "its own end is there")
