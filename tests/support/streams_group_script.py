"""The life of streams groups, the same for Apache Kafka's broker and ours, and a transcript of the
answers.

Of tasks only the numbers are compared: Kafka gives them out in the order of hash tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog.wire import apis
from tests.support.consumer_group_script import Script
from tests.support.waiting import wait_for

__all__ = ["SETTINGS", "STREAMS_KINDS", "StreamsScript", "counted"]

SETTINGS = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
STREAMS_KINDS = {17, 19, 20, 21, 22, 23}
GROUP_KIND = 32
WAIT_S = 60
MISSING_SOURCES, MISSING_INTERNAL = 1, 3
ROLES = ("active", "standby", "warmup")


def counted(value: Any) -> Any:
    """Tasks by their numbers; lists of epochs by their length."""
    if isinstance(value, dict):
        return {
            name: len(one) if name in ("partitions", "assignment_epochs") and _is_list(one)
            else counted(one)
            for name, one in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple)):
        return type(value)(counted(one) for one in value)
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def topic(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    rows = [{"key": key.replace("_", "."), "value": text} for key, text in configs.items()]
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": rows}


def part(name: str, *sources: str, **fields: Any) -> dict[str, Any]:
    return {
        "subtopology_id": name, "source_topics": list(sources), "source_topic_regex": [],
        "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [], **fields,
    }  # fmt: skip


def whole(*parts: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(parts)}


COUNTING = whole(
    part("0", "t", repartition_sink_topics=["again"]),
    part("1", state_changelog_topics=[topic("kept", cleanup_policy="compact")],
         repartition_source_topics=[topic("again", retention_ms="-1")]),
)  # fmt: skip
SIMPLE = whole(part("0", "t"))


class StreamsScript(Script):
    """One broker, and its transcript."""

    def prepare(self) -> None:
        """Create the topics, and wait for the coordinator."""
        for name, count in (("t", 4), ("u", 2)):
            self.raw.create(name, count)
        self.group = "s"
        self.tasks: dict[str, dict[str, Any]] = {}
        self.find()

    def note(self, label: str, body: Any) -> Any:
        """Add an answer to the transcript."""
        self.transcript.append((label, counted(self.plain(body))))
        return body

    # ---- requests --------------------------------------------------------------------------

    def say(
        self, member: str, epoch: int | None = None, label: str = "", *, version: int = 1,
        owns: bool = False, again: Callable[[Any], bool] = lambda _: False, **fields: Any,
    ) -> Any:  # fmt: skip
        """A heartbeat with the member's epoch, whose answer is obeyed.  `owns`: it says what it
        has; `again`: it is sent again while this holds for its answer."""
        given = self.epochs.get(member, 0) if epoch is None else epoch
        body = {"group_id": self.group, "member_id": member, "member_epoch": given, **fields}
        if owns:
            body.update({f"{role}_tasks": self.tasks[member][role] for role in ROLES})
        answers: list[Any] = []

        def answered() -> bool:
            answers.append(self.raw.call(apis.STREAMS_GROUP_HEARTBEAT, version, **body))
            return not again(answers[-1])

        wait_for(answered, "the internal topics", WAIT_S)
        found = answers[-1]
        self.note(f"{label} {member} {given} {owns} {sorted(fields)} v{version}", found)
        if not found.error_code and epoch in (None, 0):
            self.epochs[member] = found.member_epoch
            if found.active_tasks is not None:
                self.tasks[member] = {
                    role: [
                        {"subtopology_id": one.subtopology_id, "partitions": one.partitions}
                        for one in getattr(found, f"{role}_tasks")
                    ]
                    for role in ROLES
                }
        return found

    def come(self, member: str, **fields: Any) -> Any:
        """A member's first heartbeat."""
        body = {
            "topology": COUNTING, "rebalance_timeout_ms": 60_000, "process_id": f"p{member}",
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
            "endpoint_information_epoch": -1, **fields,
        }  # fmt: skip
        return self.say(member, 0, "comes", **body)

    def created(self, member: str) -> Any:
        """A member's heartbeat once the internal topics are there."""
        return self.say(member, label="created", owns=True, again=_lacks_topics)

    def rounds(self, *members: str) -> None:
        """Let members heartbeat until all have their tasks."""
        for _ in range(3):
            for member in members:
                self.say(member, owns=True)

    def described(self, version: int = 1, **fields: Any) -> Any:
        """The group."""
        found = self.raw.call(apis.STREAMS_GROUP_DESCRIBE, version, group_ids=[self.group, "none"],
                              include_authorized_operations=True, **fields)  # fmt: skip
        return self.note(f"described v{version}", found)

    def commit_of(self, member: str, epoch: int, topic_name: str, version: int = 9) -> None:
        """Offsets of partition 0 of a topic."""
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        named = {"name": topic_name} if version < 10 else {"topic_id": self.ids[topic_name]}
        found = self.raw.call(
            apis.OFFSET_COMMIT, version, group_id=self.group, member_id=member,
            generation_id_or_member_epoch=epoch, topics=[{**named, "partitions": [row]}],
        )  # fmt: skip
        self.note(f"commit {member} {epoch} {topic_name} v{version}", found)

    # ---- the script ------------------------------------------------------------------------

    def run(self) -> None:
        """The life of some groups."""
        for each in (self.alone, self.together, self.refused, self.commits, self.standbys,
                     self.static, self.endpoints, self.shutdown, self.topologies, self.types,
                     self.empty, self.delayed, self.expired):  # fmt: skip
            each()

    def alone(self) -> None:
        self.come("a")
        self.created("a")
        self.described()
        self.say("a")
        self.say("a", owns=True)
        self.described(0)
        self.described(include_topology_description=True)

    def together(self) -> None:
        self.come("b")
        self.say("b")
        self.say("a")
        self.described()
        self.say("b")
        self.say("a", owns=True)
        self.say("b")
        self.rounds("a", "b")
        for member in "cd":
            self.come(member)
        self.rounds(*"abcd")
        self.described()
        for member in "cd":
            self.say(member, -1)
        self.rounds(*"ab")
        self.described()

    def refused(self) -> None:
        epoch = self.epochs["a"]
        for fields in (
            {"rack_id": " "}, {"instance_id": ""}, {"topology": COUNTING},
            {"active_tasks": []},
            {"active_tasks": [{"subtopology_id": "9", "partitions": [0]}], "standby_tasks": [],
             "warmup_tasks": []},
            {"active_tasks": [{"subtopology_id": "0", "partitions": [4]}], "standby_tasks": [],
             "warmup_tasks": []},
            {"task_offsets": [{"subtopology_id": "0", "partition": 1, "offset": 5}] * 2},
        ):  # fmt: skip
            self.say("a", epoch, "refused", **fields)
        for number in (epoch + 1, epoch - 1, epoch - 2):
            self.say("a", number)
            self.say("a", number, owns=True)
        self.say("a", -2)
        self.say("a", -3)
        self.say("z", 4)
        self.say("z", -1)
        for fields in (
            {"rebalance_timeout_ms": -1}, {"topology": None}, {"standby_tasks": None},
            {"active_tasks": [{"subtopology_id": "0", "partitions": [1]}]},
            {"topology": whole(part("0", "t", source_topic_regex=["t.*"]))},
            {"topology": whole(part("0", "__consumer_offsets"))},
            {"topology": whole(part("0", "a b"))},
            {"topology": whole(part("0", "t", state_changelog_topics=[topic("c", 3)]))},
            {"topology": SIMPLE},
        ):  # fmt: skip
            self.come("y", **fields)
        self.come("", topology=COUNTING)
        self.come("a")
        self.group = "other"
        self.say("a", 3)
        self.say("a", -1)
        for fields in (
            whole(part("0", repartition_source_topics=[topic("r")])),
            whole(part("0", repartition_source_topics=[topic("r")],
                       repartition_sink_topics=["r"])),
        ):  # fmt: skip
            self.come("y", topology=fields)
        self.group = "s"
        self.rounds("a", "b")
        self.described()

    def commits(self) -> None:
        epoch = self.epochs["a"]
        for version in (9, 10):
            for number in (epoch, epoch + 1, epoch - 9):
                self.commit_of("a", number, "t", version)
        self.commit_of("a", epoch, "t", 8)
        self.commit_of("a", epoch - 1, "u")
        self.commit_of("x", epoch, "t")
        self.commit_of("", -1, "t")
        for member, number in (("a", epoch), ("a", epoch - 1), ("x", 1), (None, -1)):
            self.fetch(member, number)

    def standbys(self) -> None:
        assert not self.raw.alter(GROUP_KIND, "s", streams_num_standby_replicas="1").error_code

        def changed() -> bool:
            found = self.raw.describe(GROUP_KIND, "s")
            return bool(found["streams.num.standby.replicas"].value == "1")

        wait_for(changed, "the setting", WAIT_S)
        self.rounds("a", "b")
        self.described()
        offsets = [{"subtopology_id": "1", "partition": 1, "offset": 7}]
        other = [{"subtopology_id": "9", "partition": -1, "offset": 8}]
        self.say("a", task_offsets=offsets, task_end_offsets=other)
        self.described()
        self.say("b", -1)
        self.rounds("a")
        self.come("b")
        self.rounds("a", "b")
        self.described()

    def static(self) -> None:
        self.say("b", -1)
        self.come("e", instance_id="one")
        for _ in range(4):
            self.say("a", owns=True)
            self.say("e", owns=True, instance_id="one")
        self.come("f", instance_id="one")
        self.say("e", -2, instance_id="one")
        self.described()
        self.come("f", instance_id="one", process_id="pe")
        self.say("e", 3, instance_id="one")
        self.say("f", -1, instance_id="other")
        self.say("f", -1, instance_id="one")
        self.come("b")
        self.rounds("a", "b")
        self.described()

    def endpoints(self) -> None:
        where = {"host": "one", "port": 1}
        self.say("a", user_endpoint=where, endpoint_information_epoch=0)
        self.say("a", user_endpoint=where, endpoint_information_epoch=1)
        self.say("b", endpoint_information_epoch=0, client_tags=[{"key": "k", "value": "v"}])
        self.rounds("a", "b")
        self.described()

    def shutdown(self) -> None:
        self.say("b", shutdown_application=True)
        self.say("a")
        self.say("a", version=0)
        self.say("a", -1)
        self.say("b", -1)
        self.described()
        self.come("a")
        self.created("a")

    def topologies(self) -> None:
        """Topologies whose topics are not as they must be."""
        self.group = "lost"
        lost = whole(part("0", "t", "x"), epoch=3)
        self.come("a", topology=lost)
        self.come("b", topology=whole(part("0", "t"), epoch=2))
        self.come("c", topology=whole(part("0", "t"), epoch=3))
        self.rounds("a", "b")
        self.described()
        self.raw.create("x", 2)
        self.say("a", owns=True, again=_lacks_sources)
        self.rounds("a", "b")
        self.described()
        self.group = "uneven"
        pair = {"source_topics": [0, 1], "source_topic_regex": [], "repartition_source_topics": []}
        self.come("a", topology=whole(part("0", "t", "u", copartition_groups=[pair])))
        self.described()
        self.group = "fixed"
        join = {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}
        flows = part("0", "u", repartition_sink_topics=["fixed-r"])
        rest = part("1", "t", repartition_source_topics=[topic("fixed-r", 3)],
                    copartition_groups=[join])  # fmt: skip
        self.come("a", topology=whole(flows, rest))
        self.group = "sized"
        rest = part("1", "t", repartition_source_topics=[topic("sized-r")],
                    copartition_groups=[join])  # fmt: skip
        flows = part("0", "u", repartition_sink_topics=["sized-r"])
        self.come("a", topology=whole(flows, rest))
        self.created("a")
        self.described()
        self.group = "s"

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
        self.come("a")
        self.say("a", 4)
        self.say("a", -1)
        self.described()
        self.group = "s"
        self.note("groups", self.raw.call(apis.DESCRIBE_GROUPS, 6, groups=["s"]))
        self.note("listed", self.raw.call(apis.LIST_GROUPS, 5, types_filter=["streams"]))
        deleted = self.raw.call(apis.OFFSET_DELETE, 0, group_id="s", topics=[
            {"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u")
        ])  # fmt: skip
        self.note("offsets deleted", deleted)
        self.note("deleted", self.raw.call(apis.DELETE_GROUPS, 2, groups_names=["s"]))

    def empty(self) -> None:
        self.say("a", -1)
        self.described()
        self.note("empty", self.raw.call(apis.LIST_GROUPS, 5, states_filter=["empty"],
                                         types_filter=["streams"]))  # fmt: skip
        self.commit_of("", -1, "t")
        self.fetch(None, -1)
        self.note("deleted", self.raw.call(apis.DELETE_GROUPS, 2, groups_names=["s"]))
        self.described()

    def delayed(self) -> None:
        """A group that waits for more members before its first assignment."""
        self.group = "w"
        own = {"streams_initial_rebalance_delay_ms": "1500"}
        assert not self.raw.alter(GROUP_KIND, "w", **own).error_code
        self.come("a", topology=SIMPLE)
        self.come("b", topology=SIMPLE)

        def over() -> bool:
            (one,) = self.raw.call(apis.STREAMS_GROUP_DESCRIBE, 1, group_ids=["w"]).groups
            return bool(one.group_state != "Assigning")

        wait_for(over, "the end of the wait", WAIT_S)
        self.rounds("a", "b")
        self.described()

    def expired(self) -> None:
        """A member that says nothing more."""
        self.group = "e"
        own = {"streams_session_timeout_ms": "2000", "streams_heartbeat_interval_ms": "600"}
        assert not self.raw.alter(GROUP_KIND, "e", **own).error_code
        self.come("a", topology=SIMPLE)

        def empty() -> bool:
            (one,) = self.raw.call(apis.STREAMS_GROUP_DESCRIBE, 1, group_ids=["e"]).groups
            return bool(one.group_state == "Empty")

        wait_for(empty, "the end of a session", WAIT_S)
        self.described()
        self.say("a", 2)


def _lacks_topics(answer: Any) -> bool:
    return any(one.status_code == MISSING_INTERNAL for one in answer.status or ())


def _lacks_sources(answer: Any) -> bool:
    return any(one.status_code == MISSING_SOURCES for one in answer.status or ())
