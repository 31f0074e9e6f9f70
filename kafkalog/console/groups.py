"""Groups as the console shows them: their members, how far behind they are; transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog import errors
from kafkalog.client.calls.groups import MemberInfo
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.person import Person
from kafkalog.console.topics import offsets, page
from kafkalog.types import TopicPartition

__all__ = ["group", "groups", "transactions"]

LAGS_MAX = 5_000
"""Partitions of a group whose lag is looked up."""
MEMBERS_MAX, ASSIGNED_MAX = 500, 5_000
"""Members of a group that are shown, and their partitions together."""
CLIENT_CHARS_MAX = 500
"""The beginning of what a client says of itself."""
OPEN_MAX = 1_000
"""Partitions of open transactions that a page shows, together."""
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States of a transaction that has not ended."""
KINDS = ("", "classic", "consumer", "share", "streams")


def groups(person: Person, asked: Asked) -> dict[str, Any]:
    """A page of groups: `q` a part of the name, `kind`, `first`, `size`."""
    part = asked.text("q", "").lower()
    kind = asked.one_of("kind", KINDS, "")
    found = [
        one for one in person.admin.list_groups()
        if part in one.group.lower() and kind in ("", one.kind.lower())
    ]  # fmt: skip
    shown, where = page(asked, found)
    view = person.view  # another thread may forget it
    sampled = {} if view is None else {one.name: one for one in view.groups}
    return {
        **where,
        "groups": [
            {"name": one.group, "kind": one.kind or "classic", "state": one.state,
             "protocol": one.protocol_type,
             "members": getattr(sampled.get(one.group), "members", None),
             "lag": getattr(sampled.get(one.group), "lag", None)}
            for one in shown
        ],
    }  # fmt: skip


def group(person: Person, asked: Asked) -> dict[str, Any]:
    """A group, its members and the lag of its partitions: `name`."""
    name = asked.text("name")
    info = person.admin.describe_groups([name])[name]
    if info.state == "Dead":  # or of a kind that our clients cannot describe
        listed = [one for one in person.admin.list_groups() if one.group == name]
        if not listed:
            raise Refused(404, f"group {name!r}: there is none")
        info = info._replace(state=listed[0].state, protocol_type=listed[0].kind.lower())
    share = info.protocol_type == "share"
    rows = _share_lags(person, name) if share else _lags(person, name)
    return {
        "name": name, "state": info.state, "kind": info.protocol_type, "assignor": info.assignor,
        "coordinator": info.coordinator, "member_count": len(info.members),
        "members": _members(info.members[:MEMBERS_MAX]),
        "partition_count": len(rows), "partitions": rows[:LAGS_MAX],
        "lag": sum(row["lag"] or 0 for row in rows),
    }  # fmt: skip


def _members(members: Sequence[MemberInfo]) -> list[dict[str, Any]]:
    found, left = [], ASSIGNED_MAX
    for one in members:
        shown = one.assignment[:left]
        left -= len(shown)
        found.append({
            "id": one.member_id[:CLIENT_CHARS_MAX],
            "instance": one.instance_id and one.instance_id[:CLIENT_CHARS_MAX],
            "client": one.client_id[:CLIENT_CHARS_MAX], "host": one.host[:CLIENT_CHARS_MAX],
            "partitions": [[tp.topic, tp.partition] for tp in shown],
            "partition_count": len(one.assignment),
        })  # fmt: skip
    return found


def _lags(person: Person, name: str) -> list[dict[str, Any]]:
    committed = person.admin.list_group_offsets(name)
    tps = sorted(committed)[:LAGS_MAX]
    _, ends = offsets(person, tps)
    return [
        _row(tp, committed[tp].offset, ends.get(tp),
             max(0, ends[tp] - committed[tp].offset) if tp in ends else None)
        for tp in tps
    ]  # fmt: skip


def _share_lags(person: Person, name: str) -> list[dict[str, Any]]:
    begun = person.admin.list_share_group_offsets(name)
    return [_row(tp, one.offset, None, one.lag) for tp, one in sorted(begun.items())]


def _row(tp: TopicPartition, offset: int, end: int | None, lag: int | None) -> dict[str, Any]:
    return {
        "topic": tp.topic, "partition": tp.partition, "offset": offset, "end": end, "lag": lag,
    }  # fmt: skip


def transactions(person: Person, asked: Asked) -> dict[str, Any]:
    """A page of transactional ids: `q` a part of the name, `open` only those in a transaction."""
    part = asked.text("q", "").lower()
    states = OPEN if asked.flag("open") else ()
    found = [
        one for one in person.admin.list_transactions(states=states) if part in one.name.lower()
    ]
    shown, where = page(asked, found)
    more = person.admin.describe_transactions([one.name for one in shown])
    most = OPEN_MAX // max(1, len(shown))
    return {**where, "transactions": [_transaction(one, more, most) for one in shown]}


def _transaction(listed: Any, more: Any, most: int) -> dict[str, Any]:
    row = {"name": listed.name, "state": listed.state, "producer": listed.producer_id,
           "coordinator": listed.coordinator}  # fmt: skip
    try:
        info = more[listed.name]
    except errors.KafkalogError as problem:
        return {**row, "problem": str(problem)}
    return {
        **row, "state": info.state, "epoch": info.epoch, "timeout_ms": info.timeout_ms,
        "start_ms": info.start_ms if info.state in OPEN and info.start_ms >= 0 else None,
        "partition_count": len(info.partitions),
        "partitions": [list(tp) for tp in info.partitions[:most]],
    }  # fmt: skip
