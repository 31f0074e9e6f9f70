"""Streams groups, each of which gets into a state and goes on from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.streams_group_script import SIMPLE, StreamsScript, part, whole
from tests.support.waiting import wait_for

GROUP_KIND = 32
WAIT_S = 60
ASSIGNMENT_MS = 15_000
"""The longest time between two assignments that a group may ask for."""


class Streams(StreamsScript, ABC):
    """A streams group: it begins in a state, and goes on from it until it is empty."""

    state = ""
    topology: Any = SIMPLE

    def __init__(self, raw: Raw) -> None:
        super().__init__(raw)
        self.group = type(self).__name__
        self.tasks: dict[str, dict[str, Any]] = {}

    @abstractmethod
    def begin(self) -> None:
        """Get into the state."""

    @abstractmethod
    def go_on(self) -> None:
        """Go on from it; nobody is left."""

    def seen(self) -> Any:
        """All that requests can see of it, but its topology: Kafka shows the sizes of internal
        topics once it has written something."""
        (found, _) = self.described().groups
        listed = self.raw.call(apis.LIST_GROUPS, 5).groups
        return (
            {name: value for name, value in self.plain(found).items() if name != "topology"},
            [self.plain(one) for one in listed if one.group_id == self.group],
        )

    # ---- steps -------------------------------------------------------------------------------

    def now(self) -> str:
        """Its state."""
        return str(self.described().groups[0].group_state)

    def join(self, *members: str, **fields: Any) -> None:
        """Members join, and the group becomes stable."""
        for member in members:
            assert not self.come(member, topology=self.topology, **fields).error_code
        self.calm(*members, **fields)

    def calm(self, *members: str, instance_id: str | None = None, **_: Any) -> None:
        """Members heartbeat until all have their tasks."""
        more = {} if instance_id is None else {"instance_id": instance_id}

        def stable() -> bool:
            for member in members:
                assert not self.say(member, owns=member in self.tasks, **more).error_code
            return self.now() == "Stable"

        wait_for(stable, f"{self.group}: a stable group", WAIT_S)

    def go(self, *members: str, **fields: Any) -> None:
        """Members leave."""
        for member in members:
            assert not self.say(member, -1, **fields).error_code

    def count(self, *members: str) -> int:
        """The active tasks that members have."""
        rows = [one for name in members for one in self.tasks[name]["active"]]
        return sum(len(one["partitions"]) for one in rows)


class StreamsEmpty(Streams):
    """Its member has committed, and left."""

    state = "Empty"

    def begin(self) -> None:
        self.join("a")
        self.commit_of("a", self.epochs["a"], "t")
        self.go("a")

    def go_on(self) -> None:
        self.fetch(None, -1)
        assert self.transcript[-1][1]["groups"][0]["topics"]
        self.join("b")
        assert self.count("b") == 5
        self.go("b")


class StreamsNotReady(Streams):
    """A topic that it reads is missing."""

    state = "NotReady"
    topology = whole(part("0", "t", "missing"), epoch=1)

    def begin(self) -> None:
        found = self.come("a", topology=self.topology)
        assert not found.error_code
        assert [one.status_code for one in found.status]

    def go_on(self) -> None:
        found = self.say("a", owns="a" in self.tasks)
        assert not found.error_code
        assert [one.status_code for one in found.status], "it is still missing"
        self.go("a")


class StreamsAssigning(Streams):
    """It waits for more members before the first assignment."""

    state = "Assigning"

    def begin(self) -> None:
        own = {"streams_initial_rebalance_delay_ms": str(ASSIGNMENT_MS)}
        assert not self.raw.alter(GROUP_KIND, self.group, **own).error_code

        def known() -> bool:
            found = self.raw.describe(GROUP_KIND, self.group)
            return bool(found["streams.initial.rebalance.delay.ms"].value == str(ASSIGNMENT_MS))

        wait_for(known, "the setting", WAIT_S)
        for member in "ab":
            assert not self.come(member, topology=SIMPLE).error_code

    def go_on(self) -> None:
        self.calm("a", "b")
        assert self.count("a", "b") == 5
        self.go("a", "b")


class StreamsRevoking(Streams):
    """A member has to give tasks up, for which another waits."""

    state = "Reconciling"

    def begin(self) -> None:
        self.join("a")
        assert not self.come("b", topology=SIMPLE).error_code
        assert not self.say("a").error_code
        assert self.count("a") < 5, "it was told"

    def go_on(self) -> None:
        self.calm("a", "b")
        assert self.count("a", "b") == 5
        assert self.count("b")
        self.go("a", "b")


class StreamsStable(Streams):
    """All members have their tasks."""

    state = "Stable"

    def begin(self) -> None:
        self.join("a", "b", user_endpoint={"host": "one", "port": 1})

    def go_on(self) -> None:
        before = dict(self.epochs)
        for member in "ab":
            assert not self.say(member).error_code
        assert self.epochs == before
        self.commit_of("a", self.epochs["a"], "t")
        self.go("a", "b")


class StreamsAway(Streams):
    """A static member has left, and will be back."""

    state = "Reconciling"

    def begin(self) -> None:
        self.join("a", instance_id="one")
        self.go_away("a")

    def go_away(self, member: str) -> None:
        assert not self.say(member, -2, instance_id="one").error_code

    def go_on(self) -> None:
        self.join("b", instance_id="one", process_id="pa")
        assert self.count("b") == 5
        self.go("b", instance_id="one")


class StreamsDeleted(Streams):
    """Deleted: tombstones are left of it."""

    def begin(self) -> None:
        self.join("a")
        self.go("a")
        deleted = self.raw.call(apis.DELETE_GROUPS, 2, groups_names=[self.group])
        assert not deleted.results[0].error_code

    def go_on(self) -> None:
        assert self.say("a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        self.join("a")
        self.go("a")


STREAMS_GROUPS: list[type[Streams]] = [
    StreamsEmpty, StreamsNotReady, StreamsAssigning, StreamsRevoking, StreamsStable, StreamsAway,
    StreamsDeleted,
]  # fmt: skip
