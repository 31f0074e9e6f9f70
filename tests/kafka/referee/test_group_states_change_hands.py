"""Consumer and streams groups change hands in each state: Apache Kafka goes on where we stopped,
and we where it stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.kafka.referee.streams_group_states import (
    ASSIGNMENT_MS,
    GROUP_KIND,
    STREAMS_GROUPS,
    WAIT_S,
    Streams,
)
from tests.kafka.referee.test_consumer_groups import jars
from tests.kafka.referee.transaction_steps import Client
from tests.support import apache
from tests.support.migration_script import Mixed, assignment
from tests.support.raw import Raw
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

TOPIC_COUNT = 7
"""Partitions of both topics."""
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())


class Group(Mixed, ABC):
    """A consumer group: it begins in a state, and goes on from it until it is empty."""

    state = ""
    """As Kafka names it."""

    def __init__(self, raw: Raw) -> None:
        super().__init__(raw)
        self.group = type(self).__name__

    @abstractmethod
    def begin(self) -> None:
        """Get into the state."""

    @abstractmethod
    def go_on(self) -> None:
        """Go on from it; nobody is left."""

    def seen(self) -> Any:
        """All that requests can see of it."""
        begin = len(self.transcript)
        self.look()
        return [one for _, one in self.transcript[begin:]], self.committed()

    # ---- steps -------------------------------------------------------------------------------

    def come(self, *members: str, **fields: Any) -> None:
        """Members join, and the group becomes stable."""
        for member in members:
            assert not self.enter(member, "t", "u", **fields).error_code
        self.calm(*members, **fields)

    def calm(self, *members: str, instance_id: str | None = None, **_: Any) -> None:
        """Members heartbeat until all have their parts."""
        more = {} if instance_id is None else {"instance_id": instance_id}

        def stable() -> bool:
            for member in members:
                assert not self.beat(member, **more).error_code
                assert not self.beat(member, owns=True, **more).error_code
            return self.now() == "Stable"

        wait_for(stable, f"{self.group}: a stable group", WAIT_S)

    def go(self, *members: str, **fields: Any) -> None:
        """Members leave."""
        for member in members:
            assert not self.beat(member, -1, **fields).error_code

    def now(self) -> str:
        """Its state."""
        (found,) = self.raw.call(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[self.group]).groups
        return str(found.group_state)

    def all_of(self, *members: str) -> int:
        """The partitions that members have."""
        return sum(len(numbers) for one in members for numbers in self.owned[one].values())

    def committed(self, stable: bool = False) -> Any:
        """The group's offsets; `stable`: only if no transaction may change them."""
        asked = {"group_id": self.group, "member_id": None, "member_epoch": -1, "topics": None}
        (found,) = self.raw.call(apis.OFFSET_FETCH, 9, groups=[asked], require_stable=stable).groups
        return self.plain(found)

    def offset(self, member: str) -> None:
        """Commit for a partition of the first topic that a member has."""
        number = self.owned[member][self.ids["t"]][0]
        self.commit(member, self.epochs[member], number)
        (row,) = self.transcript[-1][1]["topics"]
        assert row["partitions"] == [{"partition_index": number, "error_code": 0}]


class Empty(Group):
    """Its member has committed, and left."""

    state = "Empty"

    def begin(self) -> None:
        self.come("a")
        self.offset("a")
        self.go("a")

    def go_on(self) -> None:
        assert self.committed()["topics"]
        self.come("b")
        assert self.all_of("b") == TOPIC_COUNT
        self.go("b")


class Assigning(Group):
    """A member has come, and the next assignment has to wait."""

    state = "Assigning"

    def begin(self) -> None:
        own = {"consumer_assignment_interval_ms": str(ASSIGNMENT_MS)}
        assert not self.raw.alter(GROUP_KIND, self.group, **own).error_code

        def known() -> bool:
            found = self.raw.describe(GROUP_KIND, self.group)
            return bool(found["consumer.assignment.interval.ms"].value == str(ASSIGNMENT_MS))

        wait_for(known, "the setting", WAIT_S)
        self.come("a")
        assert not self.enter("b", "t", "u").error_code

    def go_on(self) -> None:
        self.calm("a", "b")
        assert self.all_of("a", "b") == TOPIC_COUNT
        assert self.owned["b"]
        self.go("a", "b")


class Revoking(Group):
    """A member has to give partitions up, for which another waits."""

    state = "Reconciling"

    def begin(self) -> None:
        self.come("a")
        assert not self.enter("b", "t", "u").error_code
        assert not self.beat("a").error_code
        assert self.all_of("a") < TOPIC_COUNT, "it was told"
        assert not self.beat("b").error_code

    def go_on(self) -> None:
        assert not self.beat("b").error_code
        assert not self.owned["b"], "they are still the other's"
        self.calm("a", "b")
        assert self.all_of("a", "b") == TOPIC_COUNT
        self.go("a", "b")


class Stable(Group):
    """All members have their parts."""

    state = "Stable"

    def begin(self) -> None:
        self.come("a", "b", "c")
        for member in "abc":
            self.offset(member)

    def go_on(self) -> None:
        before = dict(self.epochs)
        for member in "abc":
            self.offset(member)
            assert not self.beat(member).error_code
        assert self.epochs == before
        self.go("a", "b", "c")


class Away(Group):
    """A static member has left, and will be back."""

    state = "Reconciling"

    def begin(self) -> None:
        self.come("a", instance_id="one")
        self.go_away("a")

    def go_away(self, member: str) -> None:
        assert not self.beat(member, -2, instance_id="one").error_code

    def go_on(self) -> None:
        had = self.owned["a"]
        assert self.beat("a", instance_id="one").error_code == ErrorCode.FENCED_MEMBER_EPOCH
        self.come("b", instance_id="one")
        assert self.owned["b"] == had
        self.go("b", instance_id="one")


class Pattern(Group):
    """A member subscribes to a pattern."""

    state = "Stable"

    def begin(self) -> None:
        fields = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
        assert not self.enter("a", **fields).error_code
        self.everything("a")

    def everything(self, member: str) -> None:
        def found() -> bool:
            self.beat(member)
            self.beat(member, owns=True)
            return self.all_of(member) == TOPIC_COUNT and self.now() == "Stable"

        wait_for(found, "the topics of the pattern", WAIT_S)

    def go_on(self) -> None:
        self.everything("a")
        self.go("a")


class Classic(Group):
    """Also with a member of the classic protocol."""

    state = "Stable"

    def begin(self) -> None:
        assert not self.enter("a", "t").error_code
        self.rejoin()
        self.both()

    def rejoin(self, *owned: int) -> None:
        """The classic member joins, and learns its part."""
        assert not self.join("c", *owned).error_code
        found = self.sync("c")
        assert not found.error_code
        self.parts = self.read(found.assignment)

    @staticmethod
    def read(assigned: bytes) -> list[int]:
        found = CONSUMER_PROTOCOL.decode_assignment(assigned)[1].assigned_partitions
        return [number for one in found for number in one.partitions]

    def both(self) -> None:
        """Let both go on until each has its part."""

        def stable() -> bool:
            assert not self.beat("a").error_code
            assert not self.beat("a", owns=True).error_code
            error = self.pulse("c").error_code
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self.rejoin(*self.parts)
            else:
                assert not error
            return self.now() == "Stable"

        wait_for(stable, "both members", WAIT_S)

    def go_on(self) -> None:
        assert not self.pulse("c").error_code
        self.both()
        assert self.all_of("a") + len(self.parts) == 5
        assert not self.leave(("c", None)).error_code
        self.calm("a")
        assert self.all_of("a") == 5
        self.go("a")
        self.names.clear()


class Downgraded(Classic):
    """The last member that heartbeats has left: a classic group."""

    state = ""

    def begin(self) -> None:
        Classic.begin(self)
        self.go("a")
        assert self.pulse("c").error_code == ErrorCode.REBALANCE_IN_PROGRESS
        self.lead()

    def lead(self) -> None:
        """The classic member joins, and takes everything."""
        assert not self.join("c", *self.parts).error_code
        found = self.sync("c", assignment(0, 1, 2, 3, 4))
        assert self.read(found.assignment) == [0, 1, 2, 3, 4]
        assert not self.pulse("c").error_code

    def go_on(self) -> None:
        assert not self.pulse("c").error_code
        assert not self.leave(("c", None)).error_code
        self.names.clear()


class Downgrading(Downgraded):
    """The same before the members have rejoined.  Kafka's records do not tell that they have to,
    nor does Kafka ask when it loads the group (docs/decisions.md); it takes them when they come."""

    def begin(self) -> None:
        Classic.begin(self)
        self.go("a")

    def seen(self) -> Any:
        (found,) = self.raw.call(apis.DESCRIBE_GROUPS, 6, groups=[self.group]).groups
        return found.error_code, [self.named(one.member_id) for one in found.members]

    def go_on(self) -> None:
        self.lead()
        super().go_on()


class Transactional(Group):
    """Offsets of a transaction that has not ended."""

    state = "Stable"
    end_commits = True

    def begin(self) -> None:
        self.come("a")
        self.offset("a")
        self.producer = Client(self.raw, self.group)
        assert not self.producer.init(timeout_ms=600_000)[0]
        who = self.producer.who()
        added = self.raw.call(apis.ADD_OFFSETS_TO_TXN, 3, group_id=self.group, **who)
        assert not added.error_code
        number = self.owned["a"][self.ids["t"]][0]
        rows = [{"partition_index": number, "committed_offset": 77, "committed_metadata": "x"}]

        def done() -> bool:
            found = self.raw.call(
                apis.TXN_OFFSET_COMMIT, 3, group_id=self.group, member_id="a",
                generation_id_or_member_epoch=self.epochs["a"],
                topics=[{"name": "t", "partitions": rows}], **who,
            )  # fmt: skip
            error = found.topics[0].partitions[0].error_code
            assert error in (0, ErrorCode.CONCURRENT_TRANSACTIONS), error
            return not error

        wait_for(done, "the commit", WAIT_S)
        self.pending()

    def pending(self) -> None:
        """The offset is not there yet, and a reader that waits for it is told so."""
        (topic,) = self.committed()["topics"]
        assert [one["committed_offset"] for one in topic["partitions"]] == [5]
        (topic,) = self.committed(stable=True)["topics"]
        errors = [one["error_code"] for one in topic["partitions"]]
        assert errors == [ErrorCode.UNSTABLE_OFFSET_COMMIT]

    def go_on(self) -> None:
        self.pending()
        self.producer.raw = self.raw
        who = self.producer.who()
        ended = Client.until(
            lambda: self.raw.call(apis.END_TXN, 3, committed=self.end_commits, **who),
            lambda one: one.error_code,
        )
        assert not ended.error_code

        def applied() -> bool:
            (topic,) = self.committed(stable=True)["topics"]
            (row,) = topic["partitions"]
            wanted = 77 if self.end_commits else 5
            return (row["error_code"], row["committed_offset"]) == (0, wanted)

        wait_for(applied, "the end of the transaction", WAIT_S)
        assert not self.beat("a").error_code
        self.go("a")
        deleted = self.raw.call(apis.DELETE_GROUPS, 2, groups_names=[self.group])
        assert not deleted.results[0].error_code


class Aborted(Transactional):
    """The same, and the transaction is aborted."""

    end_commits = False


class Deleted(Group):
    """Deleted: tombstones are left of it."""

    state = ""

    def begin(self) -> None:
        self.come("a", "b")
        self.offset("a")
        self.go("a", "b")
        deleted = self.raw.call(apis.DELETE_GROUPS, 2, groups_names=[self.group])
        assert not deleted.results[0].error_code

    def go_on(self) -> None:
        assert not self.committed()["topics"]
        assert self.beat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        self.come("a")
        self.go("a")


CONSUMER_GROUPS: list[type[Group]] = [
    Empty, Assigning, Revoking, Stable, Away, Pattern, Classic, Downgraded, Downgrading,
    Transactional, Aborted, Deleted,
]  # fmt: skip


# ---- changing hands ------------------------------------------------------------------------------


@contextmanager
def served(directory: Path, *, ours: bool) -> Iterator[Raw]:
    """A connection to a broker on this directory."""
    if ours:
        with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
            yield raw
    else:
        with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
            yield raw


@pytest.mark.parametrize("first", ["Kafka", "ours"])
@pytest.mark.parametrize("kinds", [CONSUMER_GROUPS, STREAMS_GROUPS], ids=["consumer", "streams"])
def test_groups_in_each_state_change_hands(
    tmp_path: Path, kinds: list[type[Group]] | list[type[Streams]], first: str
) -> None:  # fmt: skip
    """From one to the other and back: each group looks the same, goes on, and gets into its state
    again."""
    jars()
    groups: list[Any] = []
    seen: list[Any] = []
    for turn in range(3):
        with served(tmp_path / "data", ours=(first == "ours") == (turn != 1)) as raw:
            if not turn:
                for name, count in (("t", 5), ("u", 2)):
                    assert not raw.create(name, count).error_code
                groups = [kind(raw) for kind in kinds]
            for group in groups:
                group.raw = raw
                group.find()
            for group, before in zip(groups, seen, strict=False):
                assert group.seen() == before, group.group
            for group in groups if turn else ():
                group.go_on()
            for group in groups if turn < 2 else ():
                group.begin()
                if group.state:
                    assert group.now() == group.state, group.group
            seen = [group.seen() for group in groups]
