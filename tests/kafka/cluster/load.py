"""Steady load on a cluster, whose progress decides when the next step comes, and its judge."""

from __future__ import annotations

import itertools
import time

from kafkalog.cli import main
from tests.faults.history import Outcome, Send
from tests.faults.workloads.queue import ENOUGH, Queue
from tests.kafka.cluster.members import PATIENCE_S, until
from tests.kafka.cluster.nodes import Nodes
from tests.support.waiting import wait_for

LIBRARY = "librdkafka"
SHOWN = 12
SAID = 4000
"""Characters of each node's output that are shown if a run fails."""
_numbers = itertools.count()


class Load(Queue):
    """Idempotent producers of confluent-kafka with acks=all, one for each of three partitions, and
    a reader of each; a context manager, and inside it they run."""

    def __init__(self, nodes: Nodes, topic: str = "") -> None:
        """Use a new topic, named `topic` if that is given; each of three nodes leads one."""
        self.nodes = nodes
        topic = topic or f"load{next(_numbers)}"
        super().__init__(nodes.bootstrap, libraries=[LIBRARY], topic=topic)
        a, b, c = sorted(nodes.nodes)
        self.nodes.create(self.topic, [a, b, c], [b, c, a], [c, a, b])
        self.nodes.in_sync()

    def __exit__(self, kind: object, *_: object) -> None:
        super().__exit__()
        if kind is not None:
            print(self.figures(), *(node.output()[-SAID:] for node in self.nodes.nodes.values()))

    @property
    def led(self) -> dict[int, int]:
        """The leader of each partition, from ZooKeeper."""
        return {n: self.nodes.state(self.topic, n).leader for n in range(self._partitions)}

    def acknowledged_since(self, began_s: float) -> None:
        """Wait until each partition has an acknowledged record that was sent at this time or later;
        the time may be in the future."""

        def there() -> bool:
            if time.monotonic() < began_s:
                return False
            found = {
                one.partition for one in self.history.of(Send)
                if one.start >= began_s and one.outcome is Outcome.OK
            }  # fmt: skip
            return len(found) == self._partitions

        wait_for(there, "records sent since then are acknowledged", PATIENCE_S, 0.05)

    def end(self) -> None:
        """Wait until all replicas are in sync, and judge.

        Raises: AssertionError: a record was lost, duplicated or reordered, too many were given up,
        or replicas differ.
        """
        self.nodes.all_known()
        self.nodes.in_sync()
        self.stop()
        self.settle()
        found = [f"{one.kind}: {one.what}" for one in self.judge(ENOUGH)]
        assert not found, "\n".join(found[:SHOWN])
        words = ["cluster", "check", self.topic, "--bootstrap-server", self.nodes.bootstrap]
        assert main(words) == 0
        (info,) = [one for one in self.nodes.topics() if one.name == self.topic]
        until(lambda: not self.nodes.differences([info]), "copies are equal")
        print(self.topic, self.figures())
