"""Which topics a mirror copies: never its own, never copies of what it came from."""

from __future__ import annotations

import re

import pytest

from kafkalog.mirror.origins import Origin, origins, returned
from kafkalog.mirror.state import Progress, State
from kafkalog.mirror.wish import Wish
from kafkalog.types import TopicPartition


def wish(exclude: str | None = None, alias: str | None = None) -> Wish:
    left_out = None if exclude is None else re.compile(exclude)
    return Wish("h:1", "h:2", None, re.compile(".*"), left_out, alias, None, "{}", None, -1, "none",
                1, 1.0)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata",
     "kafkalog-mirror.x", "mm2-configs.a.internal", "mm2-offsets.a.internal",
     "mm2-status.a.internal", "mm2-offset-syncs.b.internal", "a.checkpoints.internal"],
)  # fmt: skip
def test_internal_topics_are_never_copied(name: str) -> None:
    assert wish().names([name, "orders", "_schemas", "my.internal"]) == [
        "orders", "_schemas", "my.internal",
    ]  # fmt: skip


def test_excluded_topics_are_not_copied() -> None:
    assert wish("dc1[.].*|x").names(["dc1.orders", "x", "xy", "orders"]) == ["xy", "orders"]


@pytest.mark.parametrize(
    ("name", "copied"),
    [("orders", True), ("a.orders", True), ("b", True), ("a.b", True), ("b.orders", False),
     ("a.b.orders", False), ("a.b.c.orders", False), ("ab.orders", True), ("b.b", False)],
)  # fmt: skip
def test_cycles_by_the_names_of_mirror_maker(name: str, copied: bool) -> None:
    """As MirrorMaker finds them: the target's alias is any of the prefixes."""
    assert wish(alias="b").names([name]) == [name] * copied
    assert wish().names([name]) == [name]


def test_copies_are_known_by_the_states_of_their_mirrors() -> None:
    """A topic that came from the target, directly or through others, is not copied back there; a
    topic recreated under the name of a copy is an ordinary one."""
    states = {
        "kafkalog-mirror.A": State({
            TopicPartition("orders", 0): Progress("", 0, (), copy="a.orders", copy_id="1",
                                                  via=("C", "A")),
            TopicPartition("old", 0): Progress("", 0, ()),
        }),
    }  # fmt: skip
    known = origins(states)
    assert known == {"a.orders": Origin(("C", "A"), "1", "kafkalog-mirror.A")}
    one = known["a.orders"]
    assert [returned(one, "1", target) for target in ("A", "C", "B", "")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not returned(one, "2", "A")
    assert returned(one, "", "A")
    assert not returned(None, "1", "A")
