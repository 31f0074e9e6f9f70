"""Topics are created, and some are deleted again; each name is used once."""

from __future__ import annotations

import kafkalog
from kafkalog.errors import TopicExists
from tests.faults.history import Anomaly, History, Outcome, TopicChange
from tests.faults.judges import topics
from tests.faults.workloads.loops import Loop
from tests.support.waiting import wait_for

PREFIX = "made-"
LAST = f"{PREFIX}last"
WAIT_MS = 30_000
SETTLE_S = 300.0
REPLICAS = 2
"""One of three nodes may be gone."""
DELETED = 3
"""One in so many topics is deleted when it is there."""


class Maker(Loop):
    """Creates and deletes, one after the other."""

    def __init__(self, history: History, bootstrap: str, pause_s: float) -> None:
        super().__init__("maker")
        self._history, self._servers, self._pause_s = history, bootstrap, pause_s
        self._made = 0

    def turn(self) -> None:
        with kafkalog.Admin(self._servers, api_timeout_ms=WAIT_MS) as admin:
            while not self.ending:
                self._made += 1
                name = f"{PREFIX}{self._made}"
                self._change(admin, name, True)
                if self._made % DELETED == 0:
                    self._change(admin, name, False)
                self.pause(self._pause_s)

    def _change(self, admin: kafkalog.Admin, name: str, exists: bool) -> None:
        """A failure does not show whether it had an effect: an earlier attempt may have had it."""
        change = self._history.begin(TopicChange, self.name, topic=name, exists=exists)
        try:
            if exists:
                admin.create_topic(name, 1, REPLICAS)
            else:
                admin.delete_topic(name)
        except kafkalog.KafkalogError:
            self._history.end(change, Outcome.UNKNOWN)
            raise
        self._history.end(change)


class Topics:
    """The workload."""

    def __init__(self, bootstrap: str, pause_s: float = 1) -> None:
        self.history = History()
        self._servers = bootstrap
        self._maker = Maker(self.history, bootstrap, pause_s)
        self._listed: dict[str, list[str]] = {}

    def begin(self) -> None:
        self._maker.start()

    def stop(self) -> None:
        self._maker.ask_to_end()

    def settle(self) -> None:
        """Each node lists the topics once it knows one that was created after all others."""
        self._maker.end()
        change = self.history.begin(TopicChange, "settling", topic=LAST, exists=True)
        wait_for(self._last_is_made, f"{LAST} is made", SETTLE_S, 0.2)
        self.history.end(change)
        for server in self._servers.split(","):
            wait_for(lambda server=server: self._knows(server), f"{server} knows {LAST}",
                     SETTLE_S, 0.2)  # fmt: skip

    def _last_is_made(self) -> bool:
        try:
            with kafkalog.Admin(self._servers, api_timeout_ms=WAIT_MS) as admin:
                admin.create_topic(LAST, 1)
        except TopicExists:
            return True
        except kafkalog.KafkalogError:
            return False
        return True

    def _knows(self, server: str) -> bool:
        try:
            with kafkalog.Admin(server, api_timeout_ms=WAIT_MS) as admin:
                found = admin.list_topics()
        except kafkalog.KafkalogError:
            return False
        self._listed[server] = [name for name in found if name.startswith(PREFIX)]
        return LAST in found

    def judge(self) -> list[Anomaly]:
        return [
            anomaly
            for server, listed in self._listed.items()
            for anomaly in topics.check(self.history, server, listed)
        ]

    def figures(self) -> dict[str, float]:
        changes = self.history.of(TopicChange)
        return {
            "changes": len(changes),
            "of unknown fate": sum(one.outcome is not Outcome.OK for one in changes),
        }
