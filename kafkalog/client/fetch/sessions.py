"""Fetch sessions (KIP-227): the broker remembers what is fetched, so a request says what changed.

Pure: a session is a value; what is asked and answered gives the next one.  One request of a
session is on its way at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

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
"""Of a request that wants a session, and of one that wants none, or ends it."""
EPOCH_MAX = 2**31 - 1
Offsets = Mapping[TopicPartition, Any]
"""Where each goes on: a consumer's Place, or all that a follower tells of itself."""
Ids = Mapping[str, UUID]

LOST = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
"""Answers after which everything is sent again at once: nothing else is wrong."""


class Session(NamedTuple):
    """What a node remembers of this client's fetches; NONE: nothing."""

    session_id: int
    """0: there is none, or the node keeps none for us."""
    epoch: int
    """Of the next request; 0: it says everything."""
    offsets: Offsets
    """By partition: where the node goes on from."""
    ids: Ids
    """By topic, as the node has them."""
    by_id: bool
    """Requests name topics by their ids."""


NONE = Session(0, NEW_EPOCH, {}, {}, False)


class Ask(NamedTuple):
    """What a request says."""

    session_id: int
    epoch: int
    offsets: Offsets
    """Partitions that are new, or go on from elsewhere; of a request that is no session's, all."""
    forgotten: list[tuple[TopicPartition, UUID]]
    """Those that are not wanted any more, with the topic's id as the node has it."""
    after: Session
    """The session once the node has taken this."""


def ask(session: Session, offsets: Offsets, ids: Ids, by_id: bool) -> Ask:
    """The request for all of `offsets`, and no other partition."""
    if session.epoch == NEW_EPOCH or session.by_id != by_id:
        after = Session(session.session_id, NEW_EPOCH, offsets, ids, by_id)
        return Ask(session.session_id, NEW_EPOCH, offsets, [], after)
    sent = session.offsets
    changed = {tp: at for tp, at in offsets.items() if sent.get(tp) != at}
    kept = len(offsets) - sum(tp not in sent for tp in changed)
    forgotten = [tp for tp in sent if tp not in offsets] if kept < len(sent) else []
    if session.ids != ids:  # the node must learn of a recreated topic
        other = {name for name, one in ids.items() if session.ids.get(name, one) != one}
        changed |= {tp: at for tp, at in offsets.items() if tp.topic in other}
        forgotten += [tp for tp in sent if tp.topic in other and tp in offsets]
    gone = [(tp, session.ids[tp.topic]) for tp in forgotten]
    after = session._replace(offsets=offsets, ids=ids)
    return Ask(session.session_id, session.epoch, changed, gone, after)


def ask_some(session: Session, changed: Offsets) -> Ask:
    """As `ask`, where the node has the same partitions and topics: `changed` are all
    that go on from elsewhere.  Not for a session that has not begun.
    """
    after = session._replace(offsets={**session.offsets, **changed})
    return Ask(session.session_id, session.epoch, changed, [], after)


def fields(said: Ask, ids: Ids, partition_bytes: int) -> dict[str, Any]:
    """What is said, as a consumer's Fetch has it."""
    topics: dict[str, list[dict[str, int]]] = {}
    for tp, at in said.offsets.items():
        topics.setdefault(tp.topic, []).append(
            {
                "partition": tp.partition,
                "current_leader_epoch": at.epoch,
                "fetch_offset": at.offset,
                "partition_max_bytes": partition_bytes,
            }
        )
    forgotten: dict[tuple[str, UUID], list[int]] = {}
    for tp, topic_id in said.forgotten:
        forgotten.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return {
        "session_id": said.session_id,
        "session_epoch": said.epoch,
        "topics": [
            {"topic": name, "topic_id": ids[name], "partitions": rows}
            for name, rows in topics.items()
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": topic_id, "partitions": numbers}
            for (name, topic_id), numbers in forgotten.items()
        ],
    }


def answered(asked: Ask, session_id: int, partitions: int) -> Session:
    """The session after an answer without an error, which holds so many partitions.

    A node that names another session, or whose first answer leaves partitions out, is sent
    everything again: nothing would be heard of them.
    """
    if asked.epoch == NEW_EPOCH:
        if session_id == 0:
            return NONE
        if partitions < len(asked.offsets):
            return lost(asked.after._replace(session_id=session_id))
        return asked.after._replace(session_id=session_id, epoch=1)
    if session_id != asked.session_id:
        return NONE if session_id == 0 else lost(asked.after._replace(session_id=session_id))
    epoch = 1 if asked.epoch == EPOCH_MAX else asked.epoch + 1
    return asked.after._replace(epoch=epoch)


def lost(session: Session, code: int = 0) -> Session:
    """After a failure: what the node still remembers makes room for the next one."""
    if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        return NONE
    return NONE._replace(session_id=session.session_id)


def closing(session: Session) -> Ask | None:
    """The request that ends it, to which no answer matters; None: there is none."""
    if session.session_id == 0:
        return None
    return Ask(session.session_id, FINAL_EPOCH, {}, [], NONE)
