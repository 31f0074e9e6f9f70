"""A broker in a separate process, under attack: how much memory and how many descriptors it takes,
and whether other clients are served at the same time.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalog.wire import apis
from tests.hostile.attack import commit_fields
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.network import Client
from tests.unit.plane.peer import Peer

MIB = 1 << 20
KINDS = ("fast", "slow", "group")
"""Kinds of requests of the witness."""
WITNESS_TOPIC = "witness"
SETTINGS = {
    "kafkalog.durability": "os",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


class Answered(NamedTuple):
    """A request of the witness."""

    kind: str
    begin_s: float
    end_s: float


class Witness:
    """The process of witness.py, read by a thread."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.hostile.witness", "127.0.0.1", str(port)]
        self._process = subprocess.Popen(
            [*command, WITNESS_TOPIC],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        self.answers: list[Answered] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, begin, end = line.split()
            self.answers.append(Answered(kind, int(begin) / 1e9, int(end) / 1e9))

    def served_since(self, begin_s: float) -> bool:
        """True if a request of each kind was sent after this moment, and answered."""
        assert self._process.poll() is None, "the client that behaves well was not served"
        kinds = {one.kind for one in self.answers[-12:] if one.begin_s >= begin_s}
        return kinds == {*KINDS}

    def serves(self) -> None:
        """Wait until requests of all kinds, sent from now on, are answered."""
        begin_s = time.monotonic()
        wait_for(lambda: self.served_since(begin_s), "others are served")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(LIMIT_S)
        self._reader.join()
        assert code == 0


def coordinated(peer: Peer) -> None:
    """Make sure that groups work: __consumer_offsets is created, read, and open."""
    peer.ask(apis.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})

    def committed() -> bool:
        found = peer.ask(apis.OFFSET_COMMIT, 8, commit_fields("g", 1))
        return bool(found.topics[0].partitions[0].error_code == 0)

    wait_for(committed, "the coordinator has read its groups")


class Victim:
    """`kafkalog serve` on a port of 127.0.0.1, and its witness."""

    def __init__(self, folder: Path, **settings: object) -> None:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        options = [f"--set={name}={value}" for name, value in {**SETTINGS, **named}.items()]
        command = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(folder / "data")]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--listen=127.0.0.1:0", *options],
                stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.address = ("127.0.0.1", int(line.rpartition(":")[2]))
        self.create(WITNESS_TOPIC)
        with contextlib.closing(self.peer()) as peer:
            coordinated(peer)
        self.witness = Witness(self.address[1])
        self.witness.serves()

    def close(self) -> None:
        """End it as an operator would: that must still work."""
        self.witness.close()
        self.process.terminate()
        with self.process:
            assert self.process.wait(LIMIT_S) == 0, self.log.read_text()

    # ---- clients ---------------------------------------------------------------------------

    def client(self) -> Client:
        """A connection that sends bytes."""
        return Client(self.address)

    def peer(self) -> Peer:
        """A connection that sends requests, already accepted: its descriptor counts from now on."""
        made = Peer(self.address)
        made.ask(apis.API_VERSIONS, 0, {})
        return made

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; settings with underscores for dots."""
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in config.items()]
        entry = {"name": topic, "num_partitions": partitions, "replication_factor": 1,
                 "configs": settings}  # fmt: skip
        with contextlib.closing(self.peer()) as peer:
            found = peer.ask(apis.CREATE_TOPICS, 5, {"topics": [entry], "timeout_ms": 30_000})
        assert found.topics[0].error_code == 0, found.topics[0].error_message

    # ---- its resources ---------------------------------------------------------------------

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split(f"\n{name}:")[1].split()[0]) * 1024

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The peak of resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def attacked(self, name: str, grows_bytes: int, files: int = 0) -> Iterator[None]:
        """An attack: at its peak the broker may take `grows_bytes` more than before, and after it
        have `files` more files open; other clients are served during and after it.
        """
        before, descriptors, cpu_s = self.resident_bytes(), self.descriptors(), self.cpu_s()
        self.forget_peak()
        begin_s = time.monotonic()
        yield
        end_s = time.monotonic()
        self.witness.serves()
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        grown = self.peak_bytes() - before
        report = f"{name}: {end_s - begin_s:.2f} s, broker {self.cpu_s() - cpu_s:.2f} s of CPU"
        print(f"{report}, {grown / MIB:+.0f} MiB; others: {self._others(begin_s)}")
        assert grown <= grows_bytes, f"{name}: {grown / MIB:.0f} MiB more than before"
        wait_for(
            lambda: self.descriptors() <= descriptors + files,
            f"{name}: {self.descriptors()} descriptors, {descriptors} before",
        )

    def _took_ms(self, kind: str, begin_s: float) -> list[float]:
        """How long the witness' requests took that were answered since then, in order."""
        return sorted(
            (one.end_s - one.begin_s) * 1000
            for one in self.witness.answers
            if one.kind == kind and one.end_s >= begin_s
        )

    def p99_ms(self, begin_s: float) -> dict[str, float]:
        """The latency of the witness' requests answered since then, by kind."""
        found = {kind: self._took_ms(kind, begin_s) for kind in KINDS}
        return {kind: took[math.ceil(len(took) * 0.99) - 1] for kind, took in found.items()}

    def _others(self, begin_s: float) -> str:
        found = []
        for kind, p99 in self.p99_ms(begin_s).items():
            took = self._took_ms(kind, begin_s)
            found.append(f"{len(took)} {kind} p99 {p99:.1f} max {took[-1]:.1f} ms")
        return ", ".join(found)
