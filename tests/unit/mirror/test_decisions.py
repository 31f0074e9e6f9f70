"""Which settings are copied, where groups continue, what a mirror's own records contain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls.configs import ConfigEntry
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.mirror.groups import moves
from kafkalog.mirror.settings import LEFT_OUT, changes
from kafkalog.mirror.spans import SPANS_MAX, Span
from kafkalog.mirror.state import (
    OWNER_KEY,
    VALUE_BYTES_MAX,
    Cut,
    Owner,
    Progress,
    State,
    key_of,
    owner_value,
    take,
    value_of,
)  # fmt: skip
from kafkalog.types import Record, TopicPartition

TP = TopicPartition("orders", 2)


def entry(name: str, value: str, source: str = "topic") -> tuple[str, ConfigEntry]:
    return name, ConfigEntry(name, value, source, False, False, None)


def test_settings_of_the_topic_are_followed_and_taken_back() -> None:
    source = dict([
        entry("cleanup.policy", "compact"), entry("retention.ms", "5", "default"),
        entry("odd.one", "1"), entry("segment.ms", "7"),
    ])  # fmt: skip
    target = dict([
        entry("cleanup.policy", "delete", "default"), entry("retention.ms", "9"),
        entry("segment.ms", "7"), entry("kafkalog.durability", "os"),
    ])  # fmt: skip
    found = changes(source, target)
    assert found.wanted == {"cleanup.policy": "compact", "retention.ms": None}
    assert found.unknown == ["odd.one"]


def test_settings_of_the_target_cluster_stay() -> None:
    source = dict(entry(name, "1") for name in LEFT_OUT)
    assert changes(source, dict(entry(name, "0") for name in LEFT_OUT)).wanted == {}


@pytest.mark.parametrize(("there", "wanted"), [("100", {"max.message.bytes": "200"}), ("300", {})])
def test_a_record_that_the_source_takes_the_copy_takes(there: str, wanted: dict[str, str]) -> None:
    """The copy's limit is never below the source's, wherever that is set."""
    source = dict([entry("max.message.bytes", "200", "broker")])
    assert changes(source, dict([entry("max.message.bytes", there, "default")])).wanted == wanted


def test_groups_are_never_moved_back_and_never_beyond_the_copy() -> None:
    progress = {TP: Progress("", 20, (Span(0, 0, 10), Span(12, 11, 8)))}
    copy = TopicPartition("dc1.orders", 2)

    def moved(offset: int, there: int | None) -> int | None:
        now = {} if there is None else {copy: CommittedOffset(there)}
        found = moves({TP: CommittedOffset(offset, 3, "m")}, progress, now, "dc1.{}".format)
        return found[copy].offset if found else None

    assert moved(13, None) == 12
    assert moved(13, 11) == 12
    assert moved(13, 12) is moved(13, 15) is None
    assert moved(99, None) == 19
    assert moves({TopicPartition("other", 0): CommittedOffset(1)}, progress, {}, str) == {}


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(7, 0, key, value, (), "kafkalog-mirror.x", 0, 0, 0)


def stateful(*records: Record) -> State:
    found = State()
    take(records, "kafkalog-mirror.x", found)
    return found


def test_state_reads_back_and_a_tombstone_forgets() -> None:
    one = Progress("id", 1 << 62, (Span(0, 0, 3), Span(5, 4, 0)), 7, "c", "d", 8, ("a", "b"),
                   Cut(3, 2), "why")  # fmt: skip
    rows = [record(key_of(TP), value_of(one))]
    assert stateful(*rows).progress == {TP: one}
    assert stateful(*rows, record(key_of(TP), None)).progress == {}
    owner = Owner("id", "host h, process 1")
    rows.append(record(OWNER_KEY, owner_value(owner)))
    assert stateful(*rows) == State({TP: one}, owner)
    assert stateful(*rows, record(OWNER_KEY, None)).owner is None


def test_states_that_only_show_copies_keep_no_spans() -> None:
    one = Progress("id", 9, (Span(0, 0, 3),), copy="c", copy_id="d", via=("a",), lost="why")
    found = State(spans=False)
    take([record(key_of(TP), value_of(one))], "kafkalog-mirror.x", found)
    assert found.progress == {TP: one._replace(spans=(), lost="")}


def test_the_size_of_a_state_is_that_of_its_last_records() -> None:
    rows = [record(key_of(TP), value_of(Progress("id", n, ()))) for n in (0, 1 << 40, 9)]
    last = rows[-1]
    assert last.key and last.value
    assert stateful(*rows).bytes == len(last.key) + len(last.value)
    assert stateful(*rows, record(key_of(TP), None)).bytes == 0


def test_state_of_the_version_before_is_read() -> None:
    old = b'{"version": 1, "topic_id": "t", "position": 9, "spans": [[1, 2, 3]]}'
    assert stateful(record(key_of(TP), old)).progress == {TP: Progress("t", 9, (Span(1, 2, 3),))}


GOOD: dict[str, Any] = {
    "version": 2, "topic_id": "", "position": 0, "spans": [], "epoch": -1, "copy": "",
    "copy_id": "", "copy_epoch": -1, "via": [], "cut": [0, -1], "lost": "",
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"{}", b"[" * 100_000,
        *(json.dumps({**GOOD, **wrong}).encode() for wrong in (
            {"version": 3}, {"version": 0}, {"position": -1}, {"topic_id": 3}, {"epoch": -2},
            {"spans": [[3, 3, 1], [2, 4, 1]]}, {"spans": [[3, 3]]}, {"via": [1]}, {"via": "a"},
            {"via": ["a"] * 65}, {"cut": [1]}, {"copy": None}, {"copy_id": 1}, {"lost": 0},
            {"copy_epoch": -2},
            {"spans": [[i, i, 0] for i in range(SPANS_MAX + 1)]},
            {"lost": "x" * VALUE_BYTES_MAX},
        )),
    ],
)  # fmt: skip
def test_a_record_that_no_mirror_wrote_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(errors.BadAnswer, match=r"'kafkalog-mirror\.x', offset 7"):
        stateful(record(key_of(TP), value))
    with pytest.raises(errors.BadAnswer):
        stateful(record(value, value_of(Progress("", 0, ()))))


def test_a_good_record_is_taken() -> None:
    assert stateful(record(key_of(TP), json.dumps(GOOD).encode())).progress == {
        TP: Progress("", 0, ())
    }
