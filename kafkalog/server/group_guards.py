"""Rules of `guards` for requests about consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog.security.permissions import Kind, Operation
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["group_operations", "hidden_members", "named_topics"]

DENIED = "The group has described topic(s) that the client is not authorized to describe."


def group_operations(check: Any) -> None:
    """The caller's operations on each group."""
    if not check.body.include_authorized_operations:
        return

    def set_them(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            if not row.get("error_code"):
                row["authorized_operations"] = check.node.admission.operations(
                    check.request.peer, Kind.GROUP, row["group_id"]
                )

    check.after.append(set_them)


def named_topics(check: Any) -> bool:
    """True if the caller may describe all topics to which its heartbeat subscribes by name."""
    names = set(check.body.subscribed_topic_names or ())
    found: set[str] = check.allowed(Operation.DESCRIBE, Kind.TOPIC, names)
    return names <= found


def hidden_members(check: Any) -> None:
    """A group with a topic that the caller may not describe is shown without its members."""

    def hide(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            names = set(_topics_of(row))
            if names and not names <= check.allowed(
                Operation.DESCRIBE, Kind.TOPIC, names, quiet=True
            ):
                row.update(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=DENIED,
                    members=[],
                )  # fmt: skip

    check.after.append(hide)


def _topics_of(row: dict[str, Any]) -> Iterator[str]:
    for member in row.get("members") or ():
        yield from member["subscribed_topic_names"]
        for kind in ("assignment", "target_assignment"):
            yield from (one["topic_name"] for one in member[kind]["topic_partitions"])
