"""Heartbeats of a consumer group, the same for Apache Kafka's broker and ours, and a transcript of
the answers.

Ids of topics are replaced by names.  Member ids have one letter: Kafka keeps members in a hash
table, whose order is then theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.topics import topic_hash
from kafkalog.wire import apis
from kafkalog.wire.records import OFFSETS
from kafkalog.wire.values import Struct
from tests.support.raw import Raw
from tests.support.waiting import wait_for

__all__ = ["SETTINGS", "Script", "told_records"]

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "45000",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
TOPICS = {"t": 5, "u": 2}
LEFT_OUT = {"throttle_time_ms", "error_message", "client_host"}
GROUP = "g"


class Script:
    """One broker, and its transcript."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.transcript: list[tuple[str, Any]] = []
        self.ids: dict[str, UUID] = {}
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[UUID, list[int]]] = {}
        self.group = GROUP

    def prepare(self) -> None:
        """Create the topics, and wait for the coordinator."""
        for name, count in TOPICS.items():
            self.raw.create(name, count)
        self.find()

    def find(self) -> None:
        """Learn the topics' ids, and wait for the coordinator."""

        def named() -> bool:
            topics = self.raw.call(apis.METADATA, 12, topics=[{"name": n} for n in TOPICS]).topics
            self.ids = {one.name: one.topic_id for one in topics if not one.error_code}
            return len(self.ids) == len(TOPICS)

        wait_for(named, "the topics", 60)

        def ready() -> bool:
            found = self.raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
            listed = self.raw.call(apis.LIST_GROUPS, 5)
            fetched = self.raw.call(apis.OFFSET_FETCH, 8, groups=[{"group_id": GROUP,
                                                                   "topics": None}])  # fmt: skip
            codes = (found.coordinators[0].error_code, listed.error_code,
                     fetched.groups[0].error_code)  # fmt: skip
            return not any(codes)

        wait_for(ready, "the coordinator", 60)

    # ---- what is compared ------------------------------------------------------------------

    def plain(self, value: Any) -> Any:
        """A response as comparable data."""
        if isinstance(value, Struct):
            return {name: self.plain(v) for name, v in value if name not in LEFT_OUT}
        if isinstance(value, list):
            return sorted((self.plain(item) for item in value), key=repr)
        return self.named(value)

    def named(self, value: Any) -> Any:
        """An id of a topic as its name."""
        if isinstance(value, UUID):
            return next((name for name, one in self.ids.items() if one == value), "other")
        return value

    def note(self, label: str, body: Any) -> Any:
        """Add an answer to the transcript."""
        self.transcript.append((label, self.plain(body)))
        return body

    # ---- requests --------------------------------------------------------------------------

    def beat(self, member: str, epoch: int | None = None, label: str = "", **fields: Any) -> Any:
        """A heartbeat with the member's epoch; its answer is obeyed."""
        given = self.epochs.get(member, 0) if epoch is None else epoch
        body = {"group_id": self.group, "member_id": member, "member_epoch": given, **fields}
        if body.pop("owns", False):
            body["topic_partitions"] = [
                {"topic_id": topic, "partitions": numbers}
                for topic, numbers in self.owned[member].items()
            ]
        found = self.raw.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, **body)
        self.note(f"{label} {member} {given} {sorted(fields)}", found)
        if not found.error_code and epoch in (None, 0):
            self.epochs[member] = found.member_epoch
            if found.assignment is not None:
                self.owned[member] = {
                    one.topic_id: one.partitions for one in found.assignment.topic_partitions
                }
        return found

    def enter(self, member: str, *topics: str, **fields: Any) -> Any:
        """A member's first heartbeat."""
        body = {"rebalance_timeout_ms": 60_000, "topic_partitions": [],
                "subscribed_topic_names": list(topics)}  # fmt: skip
        return self.beat(member, 0, "joins", **{**body, **fields})

    def settle(self, *members: str, **fields: Any) -> None:
        """Let members heartbeat until all have their parts."""
        for _ in range(4):
            for member in members:
                self.beat(member, **fields.get(member, {}))
                self.beat(member, owns=True, **fields.get(member, {}))

    def describe(self) -> Any:
        """The group."""
        found = self.raw.call(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[self.group, "none"])
        return self.note("described", found)

    def commit(self, member: str, epoch: int, *numbers: int, version: int = 9) -> None:
        """Offsets of partitions of the first topic."""
        parts = [{"partition_index": one, "committed_offset": 5, "committed_metadata": ""}
                 for one in numbers]  # fmt: skip
        named = {"name": "t"} if version < 10 else {"topic_id": self.ids["t"]}
        found = self.raw.call(
            apis.OFFSET_COMMIT, version, group_id=self.group, member_id=member,
            generation_id_or_member_epoch=epoch, topics=[{**named, "partitions": parts}],
        )  # fmt: skip
        self.note(f"commit {member} {epoch} {numbers} v{version}", found)

    def fetch(self, member: str | None, epoch: int) -> None:
        """The group's offsets."""
        asked = {"group_id": self.group, "member_id": member, "member_epoch": epoch, "topics": None}
        found = self.raw.call(apis.OFFSET_FETCH, 9, groups=[asked])
        self.note(f"fetch {member} {epoch}", found)

    # ---- the script ------------------------------------------------------------------------

    def run(self) -> None:
        """The life of a group."""
        for part in (self.alone, self.together, self.commits, self.static, self.refused,
                     self.different, self.ranges, self.end):  # fmt: skip
            part()

    def alone(self) -> None:
        self.enter("a", "t")
        self.beat("a")
        self.describe()

    def together(self) -> None:
        self.enter("b", "t")
        self.beat("b")
        self.beat("a")
        self.beat("b")
        self.describe()
        self.beat("a", owns=True)
        self.beat("a")
        self.beat("b")
        self.settle("a", "b")
        self.enter("c", "t")
        self.settle("a", "b", "c")
        self.describe()

    def commits(self) -> None:
        epoch = self.epochs["a"]
        mine = self.owned["a"][self.ids["t"]]
        other = self.owned["c"][self.ids["t"]]
        for version in (9, 10):
            for number in (epoch, epoch - 1, epoch + 1):
                self.commit("a", number, mine[0], version=version)
        self.commit("a", epoch - 1, other[0], version=10)
        self.commit("c", epoch - 1, other[0], version=10)
        self.commit("a", epoch, mine[0], version=8)
        self.commit("x", epoch, mine[0])
        self.commit("", -1, mine[0])
        for member, number in (("a", epoch), ("a", epoch - 1), ("x", 1), (None, -1)):
            self.fetch(member, number)

    def static(self) -> None:
        self.enter("d", "t", instance_id="one")
        self.settle("a", "b", "c", "d", d={"instance_id": "one"})
        self.enter("e", "t", instance_id="one")
        self.beat("d", -2, instance_id="one")
        self.describe()
        self.enter("e", "t", instance_id="one")
        self.beat("d", 3, instance_id="one")
        self.beat("e", -1, instance_id="other")
        self.describe()
        self.beat("e", -1, instance_id="one")
        self.settle("a", "b", "c")

    def refused(self) -> None:
        epoch = self.epochs["a"]
        for fields in (
            {"rack_id": " "}, {"instance_id": ""}, {"server_assignor": "none"},
            {"subscribed_topic_regex": "("},
        ):  # fmt: skip
            self.beat("a", epoch, "refused", **fields)
        self.beat("a", epoch + 1)
        self.beat("a", epoch - 1)
        self.beat("a", epoch - 1, topic_partitions=[])
        self.beat("a", epoch - 2, topic_partitions=[])
        self.beat("a", -3)
        self.beat("a", -2)
        self.beat("z", 4)
        self.enter("a", "t", topic_partitions=None)
        self.enter("", "t")
        self.enter("a", "t", group_id="")
        self.note("no name", self.raw.call(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[""]))
        self.describe()

    def different(self) -> None:
        """Members that subscribe to different topics."""
        self.beat("b", subscribed_topic_names=["t", "u"])
        self.settle("a", "b", "c")
        self.beat("c", subscribed_topic_names=["u"], owns=True)
        self.settle("a", "b", "c")
        self.describe()
        self.beat("c", subscribed_topic_names=["t", "u"], rack_id="r")
        self.beat("a", subscribed_topic_names=["t", "u", "none"])
        self.beat("a", subscribed_topic_names=["t", "u"])
        self.settle("a", "b", "c")
        self.describe()

    def ranges(self) -> None:
        for member in "abc":
            self.beat(member, server_assignor="range")
        self.settle("a", "b", "c")
        self.describe()

    def end(self) -> None:
        deleted = self.raw.call(apis.DELETE_GROUPS, 2, groups_names=[self.group])
        self.note("deleted", deleted)
        joined = self.raw.call(
            apis.JOIN_GROUP, 9, group_id="classic", session_timeout_ms=30_000, member_id="",
            rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )  # fmt: skip
        assert joined.error_code
        left = self.raw.call(apis.LEAVE_GROUP, 5, group_id=self.group, members=[
            {"member_id": "a", "group_instance_id": None},
            {"member_id": "x", "group_instance_id": None},
        ])  # fmt: skip
        self.note("left", left)
        self.settle("b", "c")
        self.beat("b", -1)
        self.beat("c", -1)
        self.describe()
        states = self.raw.call(apis.LIST_GROUPS, 5, states_filter=["EMPTY"],
                               types_filter=["consumer"])  # fmt: skip
        self.note("listed", states)


def told_records(
    records: Iterable[tuple[bytes | None, bytes | None]], ids: dict[str, UUID],
    wanted: Callable[[int], bool],
) -> list[Any]:  # fmt: skip
    """Records of __consumer_offsets as comparable data: their kinds are those that are wanted.

    Times are left out, and the hash of topics is replaced by whether it is the right one.
    """
    names = {topic_id: name for name, topic_id in ids.items()}
    hashes = {topic_hash(n, ids[n], [[]] * TOPICS[n]): n for n in ids}
    assert len(hashes) == len(ids)
    found = []
    for key, value in records:
        if key is None:
            continue
        name, kind, fields = OFFSETS.decode_key(key)
        if wanted(kind):
            told = None if value is None else _plain(OFFSETS.decode_value(name, value)[1], names)
            found.append((name, _plain(fields, names), told))
    return found


_TIMES = {"assignment_timestamp", "timestamp", "version", "client_host", "metadata_hash"}


def _plain(value: Any, names: dict[UUID, str]) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(v, names) for name, v in value if name not in _TIMES}
    if isinstance(value, list):
        return sorted((_plain(item, names) for item in value), key=repr)
    return names.get(value, "other") if isinstance(value, UUID) else value
