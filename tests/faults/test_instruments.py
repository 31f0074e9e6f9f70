"""The instruments behind faults of hosts, clocks and disks do what they claim."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.damage.powercut import disks
from tests.faults import clocks, network
from tests.faults.clocks import Clock
from tests.faults.network import Host, Network

CLOCKS = "import time\nwhile input(): print(time.time(), time.monotonic(), flush=True)"
ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 7)) as listening:
    print(flush=True)
    while True:
        with listening.accept()[0] as connection:
            while data := connection.recv(100):
                connection.sendall(data)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host that echoes on port 7."""
    if reason := network.why_not() or network.why_not_late():
        pytest.skip(reason)
    with Network() as hosts:
        made = hosts.host("one")
        command = [*made.within, sys.executable, "-c", ECHO, made.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as echo:
            assert echo.stdout is not None
            assert echo.stdout.readline()
            yield made
            echo.kill()


def quickest_s(host: Host, bytes_there: int = 10) -> float:
    """From sending a byte to receiving it back."""
    took = []
    with socket.create_connection((host.address, 7)) as there:
        for _ in range(bytes_there):
            start = time.monotonic()
            there.sendall(b"x")
            assert there.recv(1) == b"x"
            took.append(time.monotonic() - start)
    return min(took)


def test_a_host_hears_later(host: Host) -> None:
    host.hears(late_ms=(50, 60))
    assert quickest_s(host) >= 0.05
    host.hears()
    assert quickest_s(host)


def test_a_host_knows_no_connection(host: Host) -> None:
    host.hears(resets=1)
    with pytest.raises(ConnectionRefusedError):
        quickest_s(host)
    host.hears()
    assert quickest_s(host)


def test_a_clock_jump_leaves_the_monotonic_clock_alone(tmp_path: Path) -> None:
    if reason := clocks.why_not():
        pytest.skip(reason)
    clock = Clock(tmp_path, clocks.library(tmp_path))
    with subprocess.Popen(
        [*clock.within, sys.executable, "-c", CLOCKS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        for ahead in (0, 3_600, -3_600, 0.25, 0):
            clock.set_ahead(ahead)
            before = time.time(), time.monotonic()
            print("tell", file=child.stdin, flush=True)
            assert child.stdout is not None
            wall, monotonic = map(float, child.stdout.readline().split())
            assert before[0] + ahead - 0.001 <= wall <= time.time() + ahead + 0.001
            assert before[1] <= monotonic <= time.monotonic()
        print(file=child.stdin, flush=True)


def test_a_disk_takes_few_writes(memory: Path, wait_until: Callable[..., None]) -> None:
    if reason := disks.why_not("ext4") or disks.why_not_slow():
        pytest.skip(reason)
    disk = disks.Disk("ext4", memory / "disk", wait_until)
    disk.mount()
    try:
        disk.slow(10)
        start = time.monotonic()
        with (disk.root / "file").open("wb") as file:
            for _ in range(5):
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        assert time.monotonic() - start >= 0.4
    finally:
        disk.slow(None)
        disk.unmount()
