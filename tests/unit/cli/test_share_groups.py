"""`kafkalog share-groups` against a broker."""

from __future__ import annotations

import pytest

from kafkalog import Admin, Producer
from tests.unit.cli.conftest import Command, Ran


@pytest.fixture
def at(kafkalog: Command, servers: str) -> Command:
    """Run `kafkalog share-groups WORDS --bootstrap-server ...`; it must succeed."""

    def run(*words: object) -> Ran:
        ran = kafkalog("share-groups", *words, "--bootstrap-server", servers)
        assert ran.status == 0, (words, ran)
        return ran

    return run


def test_a_group_is_begun_moved_shown_and_deleted(at: Command, servers: str, unique: str) -> None:
    """As kafka-share-groups.sh does it: a plan first, then --execute."""
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic(unique, partitions=2)
        for _ in range(3):
            producer.send(unique, b"v", partition=1)
    plan = at("reset-offsets", unique, "--topic", unique, "--to-latest", "--json").rows()
    assert [(one["partition"], one["offset"], one["done"]) for one in plan] == [
        (0, 0, False), (1, 3, False),
    ]  # fmt: skip
    assert unique not in at("list").out
    at("--reset-offsets", "--group", unique, "--topic", f"{unique}:1", "--to-latest", "--execute")
    (row,) = at("describe", unique, "--json").rows()
    assert (row["topic"], row["partition"], row["start"], row["lag"]) == (unique, 1, 3, 0)
    at("reset-offsets", unique, "--all-topics", "--to-earliest", "--execute")
    (row,) = at("describe", unique, "--offsets", "--json").rows()
    assert (row["start"], row["lag"]) == (0, 3)
    assert "has no members" in at("describe", unique, "--members").out
    (state,) = at("describe", unique, "--state", "--json").rows()
    assert (state["state"], state["assignor"], state["members"]) == ("Empty", "simple", 0)
    assert {"group": unique, "state": "Empty"} in at("list", "--json").rows()
    assert unique in at("delete-offsets", unique, "--topic", unique).out
    at("delete", unique)
    assert unique not in at("list").out


def test_a_group_that_is_not_there_or_of_another_type_is_named(
    kafkalog: Command, servers: str, unique: str
) -> None:
    here = ("--bootstrap-server", servers)
    ran = kafkalog("share-groups", "describe", unique, *here)
    assert (ran.status, f"no share group '{unique}'" in ran.err) == (1, True)
    ran = kafkalog("share-groups", "describe", *here)
    assert (ran.status, "which group?" in ran.err) == (2, True)
    ran = kafkalog("share-groups", "reset-offsets", unique, "--to-latest", *here)
    assert (ran.status, "which topics?" in ran.err) == (2, True)
