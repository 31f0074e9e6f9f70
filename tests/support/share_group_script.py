"""The life of share groups, the same for Apache Kafka's broker and ours, and a transcript of the
answers.

Of assignments only the sizes are compared, and how many members read each partition: Kafka gives
partitions out in the order of a hash table, which depends on the topics' ids.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkalog.wire import apis
from tests.support.consumer_group_script import TOPICS, Script
from tests.support.waiting import wait_for

__all__ = ["SETTINGS", "SHARE_KINDS", "ShareScript", "sizes"]

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
}
SHARE_KINDS = {10, 11, 12, 13, 14, 15}
GROUP_KIND = 32
WAIT_S = 60


def sizes(value: Any) -> Any:
    """Assignments by their sizes."""
    if isinstance(value, dict):
        return {
            name: len(one) if name == "partitions" and not _rows(one) else sizes(one)
            for name, one in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple)):
        return type(value)(sizes(one) for one in value)
    return value


def _rows(value: Any) -> bool:
    return bool(value) and not isinstance(value[0], int)


class ShareScript(Script):
    """One broker, and its transcript."""

    def prepare(self) -> None:
        """Create the topics, and wait for the coordinators."""
        super().prepare()
        self.group = "s"
        self.raw.produce("t", b"1", b"2", b"3", partition=1)

    def note(self, label: str, body: Any) -> Any:
        """Add an answer to the transcript."""
        self.transcript.append((label, sizes(self.plain(body))))
        return body

    # ---- requests --------------------------------------------------------------------------

    def say(self, member: str, epoch: int | None = None, label: str = "", **fields: Any) -> Any:
        """A heartbeat with the member's epoch."""
        given = self.epochs.get(member, 0) if epoch is None else epoch
        body = {"group_id": self.group, "member_id": member, "member_epoch": given, **fields}
        found = self.raw.call(apis.SHARE_GROUP_HEARTBEAT, 1, **body)
        self.note(f"{label} {member} {given} {sorted(fields)}", found)
        if not found.error_code and epoch in (None, 0):
            self.epochs[member] = found.member_epoch
        return found

    def come(self, member: str, *topics: str, **fields: Any) -> Any:
        """A member's first heartbeat; the state of what it subscribes to is then kept."""
        found = self.say(member, 0, "comes", subscribed_topic_names=list(topics), **fields)
        if not found.error_code:
            self.kept(*topics)
        return found

    def kept(self, *topics: str, **counts: int) -> None:
        """Wait until the states of all partitions of topics are kept."""
        wanted = {name: counts.get(name, TOPICS[name]) for name in topics}

        def all_kept() -> bool:
            (found,) = self.summaries(None).groups
            has = {one.topic_name: len(one.partitions) for one in found.topics}
            return wanted.items() <= has.items()

        wait_for(all_kept, "share partitions", WAIT_S)

    def summaries(self, topics: Any, version: int = 1) -> Any:
        """DescribeShareGroupOffsets, once the share coordinator answers."""
        asked = [{"group_id": self.group, "topics": topics}]
        return self.raw.call(apis.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=asked)

    def described(self) -> Any:
        """The group, and how many members read how many partitions."""
        found = self.raw.call(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[self.group, "none"],
                              include_authorized_operations=True)  # fmt: skip
        readers = Counter(
            (one.topic_name, number)
            for member in found.groups[0].members
            for one in member.assignment.topic_partitions
            for number in one.partitions
        )
        spread = Counter((name, count) for (name, _), count in readers.items())
        self.transcript.append(("readers", sorted(spread.items())))
        return self.note("described", found)

    def rounds(self, *members: str) -> None:
        """Let members heartbeat until all have their parts."""
        for _ in range(2):
            for member in members:
                self.say(member)

    def alter(self, **starts: int) -> Any:
        """AlterShareGroupOffsets: `t1=5` is partition 1 of t."""
        topics: dict[str, list[dict[str, int]]] = {}
        for where, offset in starts.items():
            part = {"partition_index": int(where[1:]), "start_offset": offset}
            topics.setdefault(where[0], []).append(part)
        rows = [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
        found = self.raw.call(
            apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=self.group, topics=rows
        )  # fmt: skip
        return self.note(f"alter {starts}", found)

    def forget(self, *names: str) -> Any:
        """DeleteShareGroupOffsets."""
        rows = [{"topic_name": name} for name in names]
        found = self.raw.call(
            apis.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=self.group, topics=rows
        )  # fmt: skip
        return self.note(f"forget {names}", found)

    def offsets(self, topics: dict[str, list[int]] | None = None, version: int = 1) -> Any:
        """DescribeShareGroupOffsets, noted."""
        asked = None if topics is None else [
            {"topic_name": name, "partitions": some} for name, some in topics.items()
        ]  # fmt: skip
        return self.note(f"offsets {topics} v{version}", self.summaries(asked, version))

    # ---- the script ------------------------------------------------------------------------

    def run(self) -> None:
        """The life of some groups."""
        for part in (self.alone, self.together, self.refused, self.different, self.types,
                     self.empty, self.moved, self.deleted, self.expired):  # fmt: skip
            part()

    def alone(self) -> None:
        self.come("a", "t")
        self.described()
        self.say("a")
        self.say("a")
        self.described()

    def together(self) -> None:
        self.come("b", "t")
        self.rounds("a", "b")
        self.described()
        for member in "cdefgh":
            self.come(member, "t", rack_id="r")
        self.rounds(*"abcdefgh")
        self.described()
        for member in "cde":
            self.say(member, -1)
        self.rounds(*"abfgh")
        self.described()
        for member in "fgh":
            self.say(member, -1)
        self.rounds("a", "b")
        self.described()

    def refused(self) -> None:
        epoch = self.epochs["a"]
        self.say("a", epoch + 1)
        self.say("a", epoch - 1)
        self.say("a", epoch - 2)
        self.say("a", -2)
        self.say("z", 4)
        self.say("z", -1)
        self.say("y", 0)
        self.say("y", 0, subscribed_topic_names=[])
        self.say("", 0, subscribed_topic_names=["t"])
        self.say("x" * 37, 0, subscribed_topic_names=["t"])
        self.say("a", epoch, rack_id=" ")
        self.say("a", 0, "again", subscribed_topic_names=["t"])
        self.group = "other"
        self.say("a", 3)
        self.say("a", -1)
        self.group = "s"
        self.described()

    def different(self) -> None:
        """Members that subscribe to different topics."""
        self.say("b", subscribed_topic_names=["t", "u"])
        self.kept("t", "u")
        self.rounds("a", "b")
        self.described()
        self.come("c", "u")
        self.rounds("a", "b", "c")
        self.described()
        self.say("b", subscribed_topic_names=["u"], rack_id="q")
        self.say("a", subscribed_topic_names=["t", "none"])
        self.rounds("a", "b", "c")
        self.described()
        self.say("c", -1)
        self.rounds("a", "b")

    def types(self) -> None:
        """Groups of other types, and this one as one of those."""
        joined = self.raw.call(
            apis.JOIN_GROUP, 9, group_id="s", session_timeout_ms=30_000, member_id="",
            rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )  # fmt: skip
        self.note("classic", joined)
        beat = {"group_id": "s", "member_id": "m", "rebalance_timeout_ms": 9_000,
                "topic_partitions": [], "subscribed_topic_names": ["t"]}  # fmt: skip
        self.note("consumer", self.raw.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, **beat))
        self.raw.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, **{**beat, "group_id": "k"})
        self.group = "k"
        self.say("a", 0, subscribed_topic_names=["t"])
        self.say("a", 4)
        self.say("a", -1)
        self.described()
        self.alter(t0=1)
        self.forget("t")
        self.group = "s"
        self.note("groups", self.raw.call(apis.DESCRIBE_GROUPS, 6, groups=["s"]))
        self.note("no name", self.raw.call(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[""]))
        self.note("listed", self.raw.call(apis.LIST_GROUPS, 5, types_filter=["share"]))
        self.note("empty", self.raw.call(apis.LIST_GROUPS, 5, states_filter=["Empty"],
                                         types_filter=["Share"]))  # fmt: skip
        self.note("deleted", self.raw.call(apis.DELETE_GROUPS, 2, groups_names=["s"]))
        self.alter(t0=1)
        self.forget("t")

    def empty(self) -> None:
        self.say("a", -1)
        self.say("b", -1)
        self.described()
        self.note("empty", self.raw.call(apis.LIST_GROUPS, 5, states_filter=["empty"],
                                         types_filter=["share"]))  # fmt: skip

    def moved(self) -> None:
        """Where the share partitions of an empty group begin."""
        self.offsets()
        self.alter(t0=0, t1=2, u1=7, t9=1, x0=1)
        self.offsets()
        self.offsets({"t": [1, 3, 9], "x": [0]})
        self.offsets(version=0)
        self.forget("u", "x")
        self.forget("u")
        self.offsets()
        self.group = "new"
        self.alter(u0=5)
        self.described()
        self.offsets()
        self.alter()
        self.group = "none"
        self.forget("t")
        self.offsets()
        self.offsets({"t": [0]})
        self.group = "s"
        self.come("a", "t", "u")
        self.rounds("a")
        self.described()
        self.say("a", -1)

    def deleted(self) -> None:
        for name in ("s", "new", "none"):
            self.note("deleted", self.raw.call(apis.DELETE_GROUPS, 2, groups_names=[name]))
        self.described()
        self.offsets()

    def expired(self) -> None:
        """A member that says nothing more."""
        self.group = "e"
        own = {"share_session_timeout_ms": "2000", "share_heartbeat_interval_ms": "600"}
        assert not self.raw.alter(GROUP_KIND, "e", **own).error_code
        self.come("a", "u")

        def empty() -> bool:
            (one,) = self.raw.call(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=["e"]).groups
            return bool(one.group_state == "Empty")

        wait_for(empty, "the end of a session", WAIT_S)
        self.described()
        self.say("a", 2)
