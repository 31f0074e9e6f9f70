"""Fetch sessions (KIP-227): the broker remembers the partitions, so a request has only changes.

Pure: a session is a value; a request and its answer yield the next one.  A session has one request
in flight at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.client.link.chunks import by_topic
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "LOST",
    "NEW_EPOCH",
    "NONE",
    "Ask",
    "Session",
    "answered",
    "ask",
    "ask_some",
    "closing",
    "fields",
    "lost",
]

NEW_EPOCH, FINAL_EPOCH = 0, -1
"""Epochs of a request that starts a session, and of one without a session or that closes it."""
EPOCH_MAX = 2**31 - 1
Offsets = Mapping[TopicPartition, Any]
"""Where each continues: a consumer's FetchPosition, or a follower's own state."""
Ids = Mapping[str, UUID]

LOST = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
"""Answers after which a full request is sent at once: nothing else is wrong."""


class Session(NamedTuple):
    """A node's memory of this client's fetches; NONE: there is no session."""

    session_id: int
    """0: there is none, or the node refused one."""
    epoch: int
    """Session epoch of the next request; 0: it is a full one."""
    offsets: Offsets
    """By partition: where the node continues."""
    ids: Ids
    """By topic, as the node knows them."""
    by_id: bool
    """True if requests have topic ids instead of names."""


NONE = Session(0, NEW_EPOCH, {}, {}, False)


class Ask(NamedTuple):
    """The content of a request."""

    session_id: int
    epoch: int
    offsets: Offsets
    """Partitions that are new or have moved; of a full request all."""
    forgotten: list[tuple[TopicPartition, UUID]]
    """Partitions to drop from the session, with the topic id that the node knows."""
    after: Session
    """The session once the node has processed the request."""


def ask(session: Session, offsets: Offsets, ids: Ids, by_id: bool) -> Ask:
    """The request for exactly the partitions of `offsets`."""
    if session.epoch == NEW_EPOCH or session.by_id != by_id:
        after = Session(session.session_id, NEW_EPOCH, offsets, ids, by_id)
        return Ask(session.session_id, NEW_EPOCH, offsets, [], after)
    sent = session.offsets
    changed = {tp: at for tp, at in offsets.items() if sent.get(tp) != at}
    kept = len(offsets) - sum(tp not in sent for tp in changed)
    forgotten = [tp for tp in sent if tp not in offsets] if kept < len(sent) else []
    if session.ids != ids:  # tell the node about recreated topics
        other = {name for name, one in ids.items() if session.ids.get(name, one) != one}
        changed |= {tp: at for tp, at in offsets.items() if tp.topic in other}
        forgotten += [tp for tp in sent if tp.topic in other and tp in offsets]
    gone = [(tp, session.ids[tp.topic]) for tp in forgotten]
    after = session._replace(offsets=offsets, ids=ids)
    return Ask(session.session_id, session.epoch, changed, gone, after)


def ask_some(session: Session, changed: Offsets) -> Ask:
    """As `ask`, if the node has the same partitions and topics: `changed` has all that moved.  Not
    for a session that has not begun.
    """
    after = session._replace(offsets={**session.offsets, **changed})
    return Ask(session.session_id, session.epoch, changed, [], after)


def fields(request: Ask, ids: Ids, partition_bytes: int) -> dict[str, Any]:
    """The fields of a consumer's Fetch."""
    topics = by_topic(
        (tp.topic, {"partition": tp.partition, "current_leader_epoch": at.epoch,
                    "fetch_offset": at.offset, "partition_max_bytes": partition_bytes})
        for tp, at in request.offsets.items()
    )  # fmt: skip
    forgotten: dict[tuple[str, UUID], list[int]] = {}
    for tp, topic_id in request.forgotten:
        forgotten.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return {
        "session_id": request.session_id,
        "session_epoch": request.epoch,
        "topics": [
            {"topic": name, "topic_id": ids[name], "partitions": rows}
            for name, rows in topics.items()
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": topic_id, "partitions": numbers}
            for (name, topic_id), numbers in forgotten.items()
        ],
    }


def answered(request: Ask, session_id: int, partitions: int) -> Session:
    """The session after an answer without an error that has so many partitions.

    If the node names another session, or its first answer lacks partitions, the next request is a
    full one: otherwise it would never answer for those.
    """
    if request.epoch == NEW_EPOCH:
        if session_id == 0:
            return NONE
        if partitions < len(request.offsets):
            return lost(request.after._replace(session_id=session_id))
        return request.after._replace(session_id=session_id, epoch=1)
    if session_id != request.session_id:
        return NONE if session_id == 0 else lost(request.after._replace(session_id=session_id))
    epoch = 1 if request.epoch == EPOCH_MAX else request.epoch + 1
    return request.after._replace(epoch=epoch)


def lost(session: Session, code: int = 0) -> Session:
    """The session after a failure; the next request names it, so the node can reuse its place."""
    if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return NONE
    return NONE._replace(session_id=session.session_id)


def closing(session: Session) -> Ask | None:
    """The request that closes it, whose answer does not matter; None: there is no session."""
    if session.session_id == 0:
        return None
    return Ask(session.session_id, FINAL_EPOCH, {}, [], NONE)
