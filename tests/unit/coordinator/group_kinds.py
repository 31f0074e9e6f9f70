"""The answer of each API for a group of each type: one table, for us and for Apache Kafka.

The groups are those of the golden node `node-4.4`, after the members of all but the classic group
are gone.  A result is Kafka's name of the error; for OffsetFetch also the committed offset of
partition 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["CASE", "GROUPS", "TABLE", "Ask", "said"]

Ask = Callable[[Api, int, dict[str, Any]], Any]
"""Sends a request and returns the body of its answer."""
CASE = "node-4.4"
GROUPS = {"classic": "classic", "consumer": "consumer", "share": "share",
          "streams": "word-count", "absent": "none"}  # fmt: skip
"""A group of each type."""
NOBODY = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
"""A member that the group does not have."""
ADMIN = {"generation_id_or_member_epoch": -1, "member_id": ""}
TRANSACTION = {"transactional_id": "types", "producer_id": 4000, "producer_epoch": 0}
OFFSET = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}


def _name(code: int) -> str:
    return ErrorCode(code).name


def _offset_fetch(version: int, **member: Any) -> Callable[[Ask, str], str]:
    topics = [{"name": "orders", "partition_indexes": [0]}]

    def asked(ask: Ask, group: str) -> str:
        one = {"group_id": group, "topics": topics, **member}
        if version < 8:
            found = ask(apis.OFFSET_FETCH, version, one)
        else:
            (found,) = ask(apis.OFFSET_FETCH, version, {"groups": [one]}).groups
        if found.error_code:
            return _name(found.error_code)
        place = found.topics[0].partitions[0]
        return f"{_name(place.error_code)} {place.committed_offset}"

    return asked


def _all_offsets(ask: Ask, group: str) -> str:
    (found,) = ask(
        apis.OFFSET_FETCH, 9, {"groups": [{"group_id": group, "topics": None}]}
    ).groups  # fmt: skip
    return f"{_name(found.error_code)} of {len(found.topics)} topics"


def _commit(api: Api, version: int, **member: Any) -> Callable[[Ask, str], str]:
    topics = [{"name": "orders", "partitions": [OFFSET]}]

    def asked(ask: Ask, group: str) -> str:
        (topic,) = ask(api, version, {"group_id": group, "topics": topics, **member}).topics
        return _name(topic.partitions[0].error_code)

    return asked


def _describe(version: int) -> Callable[[Ask, str], str]:
    def asked(ask: Ask, group: str) -> str:
        (found,) = ask(apis.DESCRIBE_GROUPS, version, {"groups": [group]}).groups
        return f"{_name(found.error_code)} {found.group_state}"

    return asked


def _whole(api: Api, version: int, **fields: Any) -> Callable[[Ask, str], str]:
    def asked(ask: Ask, group: str) -> str:
        return _name(ask(api, version, {"group_id": group, **fields}).error_code)

    return asked


def _delete(ask: Ask, group: str) -> str:
    (found,) = ask(apis.DELETE_GROUPS, 3, {"groups_names": [group]}).results
    return _name(found.error_code)


def _join(ask: Ask, group: str) -> str:
    found = ask(apis.JOIN_GROUP, 9, {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "member_id": "nobody", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    })  # fmt: skip
    return f"{_name(found.error_code)} {found.member_id!r}"


def _list(**filters: Any) -> Callable[[Ask, str], str]:
    def asked(ask: Ask, group: str) -> str:
        found = {one.group_id: one for one in ask(apis.LIST_GROUPS, 5, filters).groups}
        one = found.get(group)
        return f"{one.group_type} {one.protocol_type} {one.group_state}" if one else "-"

    return asked


BEAT = {"generation_id": 1, "member_id": "nobody"}
SYNC = {**BEAT, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
DELETED = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
UNKNOWN, ABSENT, ILLEGAL = "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND", "ILLEGAL_GENERATION"
NOT_CLASSIC = f"{ABSENT} Dead"
NO_FILTER = ("classic consumer Stable", "consumer consumer Empty", "share share Empty",
             "streams streams Empty", "-")  # fmt: skip
# Requests that change a group come last.
TABLE: Mapping[str, tuple[Callable[[Ask, str], str], tuple[str | None, ...]]] = {
    # request: classic, consumer, share, streams, absent; None: not asked
    "DescribeGroups 5": (
        _describe(5), ("NONE Stable", "NONE Dead", "NONE Dead", "NONE Dead", "NONE Dead")
    ),
    "DescribeGroups 6": (_describe(6), ("NONE Stable", *4 * (NOT_CLASSIC,))),
    "ListGroups": (_list(), NO_FILTER),
    "ListGroups of a type": (
        _list(types_filter=["Share", "CONSUMER"]), ("-", *NO_FILTER[1:3], "-", "-")
    ),
    "ListGroups of a type and a state": (
        _list(types_filter=["classic", "streams"], states_filter=["empty"]),
        ("-", "-", "-", NO_FILTER[3], "-"),
    ),
    "ListGroups of no type": (_list(types_filter=["nonsense"]), 5 * ("-",)),
    "OffsetFetch 5": (_offset_fetch(5), ("NONE 1", "NONE 1", *3 * ("NONE -1",))),
    "OffsetFetch 8": (_offset_fetch(8), ("NONE 1", "NONE 1", *3 * ("NONE -1",))),
    "OffsetFetch of a stranger": (
        _offset_fetch(9, member_id="nobody", member_epoch=3),
        ("NONE 1", UNKNOWN, "NONE -1", UNKNOWN, "NONE -1"),
    ),
    "OffsetFetch of a stranger without an epoch": (
        _offset_fetch(9, member_id="nobody", member_epoch=-1),
        ("NONE 1", UNKNOWN, "NONE -1", UNKNOWN, "NONE -1"),
    ),
    "OffsetFetch of all": (
        _all_offsets, tuple(f"NONE of {count} topics" for count in (1, 1, 0, 2, 0))
    ),
    "Heartbeat": (_whole(apis.HEARTBEAT, 4, **BEAT), 5 * (UNKNOWN,)),
    "SyncGroup": (_whole(apis.SYNC_GROUP, 5, **SYNC), 5 * (UNKNOWN,)),
    "OffsetCommit 8 of a stranger": (
        _commit(apis.OFFSET_COMMIT, 8, **NOBODY), (UNKNOWN, UNKNOWN, ABSENT, UNKNOWN, ILLEGAL)
    ),
    "OffsetCommit 9 of a stranger": (
        _commit(apis.OFFSET_COMMIT, 9, **NOBODY), (UNKNOWN, UNKNOWN, ABSENT, UNKNOWN, ABSENT)
    ),
    "TxnOffsetCommit of a stranger": (
        _commit(apis.TXN_OFFSET_COMMIT, 5, **TRANSACTION, **NOBODY),
        (UNKNOWN, UNKNOWN, ABSENT, UNKNOWN, ILLEGAL),
    ),
    "TxnOffsetCommit without a member": (
        _commit(apis.TXN_OFFSET_COMMIT, 5, **TRANSACTION, **ADMIN), (None, None, ABSENT, None, None)
    ),
    "OffsetCommit 9 without a member": (
        _commit(apis.OFFSET_COMMIT, 9, **ADMIN), (UNKNOWN, "NONE", ABSENT, "NONE", "NONE")
    ),
    "OffsetDelete": (
        _whole(apis.OFFSET_DELETE, 0, topics=DELETED), ("NONE", "NONE", ABSENT, "NONE", "NONE")
    ),
    "JoinGroup of a stranger": (
        _join, (f"{UNKNOWN} 'nobody'", None, "INCONSISTENT_GROUP_PROTOCOL ''", None, None),
    ),
    "DeleteGroups": (_delete, ("NON_EMPTY_GROUP", "NONE", "NONE", "NONE", "NONE")),
    "DeleteGroups again": (_delete, ("NON_EMPTY_GROUP", *4 * (ABSENT,))),
    "OffsetFetch of all, then": (
        _all_offsets, tuple(f"NONE of {count} topics" for count in (1, 0, 0, 0, 0))
    ),
}  # fmt: skip


def said(ask: Ask) -> dict[tuple[str, str], tuple[str | None, str]]:
    """By request and type of group: the result in the table, and the result found."""
    found = {}
    for request, (asked, wanted) in TABLE.items():
        for (kind, group), answer in zip(GROUPS.items(), wanted, strict=True):
            if answer is not None:
                found[request, kind] = answer, asked(ask, group)
    return found
