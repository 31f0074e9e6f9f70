"""`kafkalog streams-groups` against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import Admin, Producer
from kafkalog.wire import apis
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.cli.conftest import Command, Ran
from tests.unit.coordinator.streams_group_calls import internal, subtopology, topology


@pytest.fixture
def at(kafkalog: Command, servers: str) -> Command:
    """Run `kafkalog streams-groups WORDS --bootstrap-server ...`; it must succeed."""

    def run(*words: object) -> Ran:
        ran = kafkalog("streams-groups", *words, "--bootstrap-server", servers)
        assert ran.status == 0, (words, ran)
        return ran

    return run


@pytest.fixture
def counting(servers: str, unique: str) -> Iterator[dict[str, Any]]:
    """A group that counts the words of a topic; the fields of its member's next heartbeat."""
    again, kept = f"{unique}-again", f"{unique}-kept"
    found = topology(
        subtopology("0", unique, repartition_sink_topics=[again]),
        subtopology("1", state_changelog_topics=[internal(kept)],
                    repartition_source_topics=[internal(again)]),
    )  # fmt: skip
    with Admin(servers) as admin, Producer(servers) as producer, Raw(servers) as raw:
        admin.create_topic(unique, partitions=2)
        for number in (0, 1, 1):
            producer.send(unique, b"v", partition=number)
        raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[unique])
        body = {
            "group_id": unique, "member_id": "m", "member_epoch": 0, "process_id": "p",
            "endpoint_information_epoch": -1, "rebalance_timeout_ms": 60_000, "topology": found,
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        }  # fmt: skip
        answers: list[Any] = []

        def ready() -> bool:
            answers.append(raw.call(apis.STREAMS_GROUP_HEARTBEAT, 1, **body))
            status = answers[-1].status
            return not answers[-1].error_code and all(one.status_code == 5 for one in status)

        wait_for(ready, "the internal topics")
        admin.alter_configs({("group", unique): {"streams.heartbeat.interval.ms": "6000"}}).check()
        yield {**body, "raw": raw}


def test_a_group_is_shown_moved_and_deleted(
    at: Command, servers: str, unique: str, counting: dict[str, Any]
) -> None:
    raw = counting.pop("raw")
    assert unique in at().out

    def placed() -> bool:
        raw.call(apis.STREAMS_GROUP_HEARTBEAT, 1, **counting)
        (row,) = at("describe", unique, "--members", "--json").rows()
        return bool(row["active"] == ["0_0", "0_1", "1_0", "1_1"])

    wait_for(placed, "the tasks")
    (state,) = at("describe", unique, "--state", "--json").rows()
    assert (state["assignor"], state["members"]) == ("sticky", 1)
    assert "committed nothing" in at("describe", unique).out
    with Admin(servers) as admin:
        info = admin.describe_streams_groups([unique])[unique]
        assert info.input_topics == (unique,)
        assert info.internal_topics == (f"{unique}-again", f"{unique}-kept")
        assert [str(one) for one in info.members[0].active] == ["0_0", "0_1", "1_0", "1_1"]
        missing = admin.describe_streams_groups(["none"])
        assert "Group none not found." in str(missing.errors["none"])
        assert admin.describe_groups([unique])[unique].protocol_type == "streams"
    left = {**counting, "member_epoch": -1, "topology": None}
    assert not raw.call(apis.STREAMS_GROUP_HEARTBEAT, 1, **left).error_code
    at("reset-offsets", unique, "--all-topics", "--to-latest", "--execute")
    rows = at("describe", unique, "--json").rows()
    assert [(one["partition"], one["committed"], one["lag"]) for one in rows] == [
        (0, 1, 0), (1, 2, 0),
    ]  # fmt: skip
    at("reset-offsets", unique, "--topic", f"{unique}:1", "--shift-by", "-1", "--execute",
       "--delete-internal-topic", f"{unique}-again")  # fmt: skip
    assert [one["lag"] for one in at("describe", unique, "--json").rows()] == [0, 1]
    at("delete-offsets", unique, "--topic", f"{unique}:1")
    assert len(at("describe", unique, "--json").rows()) == 1
    at("delete", unique, "--delete-all-internal-topics")
    assert unique not in at("list").out
    with Admin(servers) as admin:

        def alone() -> bool:
            return [name for name in admin.list_topics() if name.startswith(unique)] == [unique]

        wait_for(alone, "the end of the internal topics")


def test_mistakes_are_named(kafkalog: Command, servers: str, unique: str) -> None:
    here = ("--bootstrap-server", servers)
    ran = kafkalog("streams-groups", "describe", unique, *here)
    assert (ran.status, f"no streams group '{unique}'" in ran.err) == (1, True)
    ran = kafkalog("streams-groups", "describe", *here)
    assert (ran.status, "which group?" in ran.err) == (2, True)


def test_only_topics_of_the_application_are_deleted(
    kafkalog: Command, servers: str, unique: str, counting: dict[str, Any]
) -> None:
    left = {**counting, "member_epoch": -1, "topology": None}
    assert not left.pop("raw").call(apis.STREAMS_GROUP_HEARTBEAT, 1, **left).error_code
    ran = kafkalog(
        "streams-groups", "reset-offsets", unique, "--all-topics", "--to-earliest", "--execute",
        "--delete-internal-topic", unique, "--bootstrap-server", servers,
    )  # fmt: skip
    assert (ran.status, "is none of the application's" in ran.err) == (2, True)
