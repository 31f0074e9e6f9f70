"""A KRaft cluster of nodes of both kinds, each a broker and a controller in one process."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.cli import main
from kafkalog.client.calls.quorum import QuorumInfo
from kafkalog.disk.layout import METADATA_TOPIC, random_topic_id, uuid_text
from kafkalog.wire import apis
from tests.kafka.cluster.members import OURS, SETTINGS, Members, until
from tests.kafka.quorum.nodes import OPEN, Dress, Process
from tests.support import apache
from tests.support.copies import batches_in

FILE = """
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.{voters}
log.dirs={data}
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=6000
log.initial.task.delay.ms=500
metadata.log.max.record.bytes.between.snapshots=20000
"""
"""With frequent snapshots: a new voter begins with one, and a node that changes hands has some."""


class Combined(Process):
    """One node, of one kind or the other.

    It keeps its number, directory, address and file whatever its kind, so it can change hands.
    """

    def __init__(
        self, home: Path, number: int, cluster: str, protected: Callable[[str], Dress] | None
    ) -> None:  # fmt: skip
        """`protected`: see CombinedNodes."""
        port, controller = apache.free_port(), apache.free_port()
        self._more, dress = "", OPEN
        if protected is not None:
            where = {"OUTSIDE": port, "INSIDE": apache.free_port(), "CONTROLLER": controller}
            dress = protected(",".join(f"{n}://127.0.0.1:{p}" for n, p in where.items()))
            self._more = dress.settings(False, port)
        super().__init__(home, number, cluster, port, "", [], dress=dress)
        self.controller = f"127.0.0.1:{controller}"
        """Where its controller listens."""
        self.directory_id = uuid_text(random_topic_id())
        """The id that its directory gets if it is one of the first voters."""

    @property
    def client(self) -> Mapping[str, str]:
        """The settings of an administrator."""
        return self._dress.client

    @property
    def properties(self) -> Path:
        """Its server.properties, which either kind reads."""
        return self._properties

    def write(self, voters: str, formatted: Sequence[str]) -> None:
        """Write its file; `voters`: the line that says where they are; `formatted`: more arguments
        for the tool that formats."""
        text = FILE.format(
            node=self.number, port=self.port, controller=self.controller.rpartition(":")[2],
            voters=voters, data=self.data,
        )  # fmt: skip
        text += "".join(f"{name}={value}\n" for name, value in SETTINGS.items()) + self._more
        self._properties.write_text(text)
        self._formatted = [*formatted, *self._dress.formatted]

    def stop(self) -> int:
        """Ours ends well; Java says that a signal ended it."""
        status = super().stop()
        assert status == 0 or self.kind != OURS, self.output()[-4000:]
        return status


class CombinedNodes(Members):
    """A context manager; nodes begin on command."""

    controller_is_told = False  # brokers of KRaft name any broker

    def __init__(
        self, home: Path, first: Iterable[int], later: Iterable[int] = (), dynamic: bool = True,
        protected: Callable[[str], Dress] | None = None,
    ) -> None:  # fmt: skip
        """`first`: the nodes that the cluster begins with; `later`: those that may join;
        `dynamic`: the voters are in the metadata log (KIP-853), not in the settings; `protected`:
        how, with these `listeners`: OUTSIDE, INSIDE and CONTROLLER."""
        home.mkdir()
        self.cluster = urlsafe_b64encode(b"k" + secrets.token_bytes(15)).decode().rstrip("=")
        first, later = [*first], [*later]
        self.nodes = {n: Combined(home, n, self.cluster, protected) for n in (*first, *later)}
        self.client = dict(self.nodes[first[0]].client)
        """The settings of an administrator."""
        self.bootstrap = ",".join(node.address for node in self.nodes.values())
        founders = [self.nodes[n] for n in first]
        named = ",".join(f"{one.number}@{one.controller}:{one.directory_id}" for one in founders)
        if dynamic:
            voters = "bootstrap.servers=" + ",".join(n.controller for n in self.nodes.values())
        else:
            voters = "voters=" + ",".join(f"{one.number}@{one.controller}" for one in founders)
        for n, node in self.nodes.items():
            how = ["--initial-controllers", named] if n in first else ["--no-initial-controllers"]
            node.write(voters, how if dynamic else [])
        self._open = contextlib.ExitStack()

    def __enter__(self) -> CombinedNodes:
        with contextlib.ExitStack() as undo:
            undo.callback(self._kill)
            self.admin = undo.enter_context(kafkalog.Admin(self.bootstrap, config=self.client))
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _kill(self) -> None:
        for node in self.living:
            node.kill()

    # ---- queries -----------------------------------------------------------------------------

    def metadata(self, node: Any) -> Any:
        with contextlib.suppress(OSError, kafkalog.KafkalogError), node.connection() as made:
            return made.call(apis.METADATA, {"topics": None}, 12)
        return None

    def quorum(self) -> QuorumInfo:
        return self.try_until(self.admin.describe_quorum, "the quorum is described")

    def controller(self) -> int:
        """The active controller; -1: none answers."""
        with contextlib.suppress(kafkalog.KafkalogError):
            return self.admin.describe_quorum().leader
        return -1

    def in_sync(self) -> None:
        """Also the voters: they are the living nodes, and have what is committed."""
        super().in_sync()
        committed = self.quorum().high_watermark

        def caught_up() -> bool:
            found = self.quorum().voters
            return {one.node for one in found} == {node.number for node in self.living} and all(
                one.end_offset >= committed for one in found
            )

        until(caught_up, "the voters have everything")

    def fits(self, number: int) -> None:
        assert main(["storage", "info", "--config", str(self.nodes[number].properties)]) == 0

    # ---- actions -----------------------------------------------------------------------------

    def begin_all(self, numbers: Sequence[int], kind: str) -> None:
        """Start them together: the first of three waits for the second."""
        with ThreadPoolExecutor(len(numbers)) as starting:
            for _ in starting.map(lambda number: self.nodes[number].begin(kind), numbers):
                pass
        self.all_known()

    def joined(self, number: int) -> None:
        """It becomes a voter."""
        file = str(self.nodes[number].properties)
        self._command("add-controller", "--config", file)

    def leaves(self, number: int) -> None:
        """It is a voter no longer, ends, and is forgotten."""
        (directory,) = {one.directory_id for one in self.quorum().voters if one.node == number}
        words = ("--controller-id", str(number), "--controller-directory-id", uuid_text(directory))
        self._command("remove-controller", *words)
        self.nodes[number].stop()
        where = ["--bootstrap-server", self.bootstrap]
        self.try_until(
            lambda: main(["cluster", "unregister", str(number), *where]) == 0, "it is forgotten"
        )

    def _command(self, *words: str) -> None:
        """`kafkalog quorum`, until it was carried out."""
        servers = ("--bootstrap-server", self.bootstrap)
        until(lambda: main(["quorum", *words, *servers]) == 0, f"{words}")

    def end(self) -> None:
        """Stop them.  Kafka's last one would wait for controllers that are gone: it is killed."""
        *others, last = self.living
        for node in others:
            node.stop()
        if last.kind == OURS:
            last.stop()
        else:
            last.kill()


def checked(folders: Sequence[Path]) -> None:
    """Check the directories of nodes that have ended: `kafkalog verify` and Kafka's dump find no
    damage and the same batches, and the metadata logs are equal as far as each goes."""
    command = [sys.executable, "-m", "kafkalog", "verify", *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    logs = [folder / f"{METADATA_TOPIC}-0" for folder in folders]
    for one, other in itertools.combinations(logs, 2):
        start = max(_start(one), _start(other))
        a, b = (b"".join(batches_in(log, start)) for log in (one, other))
        assert a and b and (a.startswith(b) or b.startswith(a)), (one, other)
    _same_to_kafka([path for one in folders for path in sorted(one.glob("*-*/*.log"))])


def _start(folder: Path) -> int:
    """The offset that its first segment is named after."""
    return min(int(one.stem) for one in folder.glob("*.log"))


def _same_to_kafka(files: Sequence[Path]) -> None:
    """Kafka's dump finds the same valid batches in these segments as we do."""
    for path, found in apache.dump(files, records=False).items():
        assert all(one.valid for one in found.batches) and not found.other, path
        data = path.read_bytes()
        ours = [(one.base_offset, one.last_offset, len(raw)) for one, raw in whole_batches(data)]
        assert [(one.base_offset, one.last_offset, one.size) for one in found.batches] == ours, path
