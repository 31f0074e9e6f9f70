"""Requests and answers about share partitions' states, between the wire and the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalog.coordinator.share_state.persister import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateBatch,
    StateChanged,
    StateRead,
    SummaryRead,
    WriteState,
)
from kafkalog.coordinator.share_state.requests import Request, Result
from kafkalog.coordinator.step import Body
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["API_OF", "SERVED", "answer", "asked_in", "question", "results_in"]


def _batches(rows: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in rows
    )


_READERS: dict[Api, Callable[[UUID, Any], Request]] = {
    apis.INITIALIZE_SHARE_GROUP_STATE: lambda topic_id, one: InitializeState(
        topic_id, one.partition, one.state_epoch, one.start_offset
    ),
    apis.READ_SHARE_GROUP_STATE: lambda topic_id, one: ReadState(
        topic_id, one.partition, one.leader_epoch
    ),
    apis.WRITE_SHARE_GROUP_STATE: lambda topic_id, one: WriteState(
        topic_id, one.partition, one.state_epoch, one.leader_epoch, one.start_offset,
        one.delivery_complete_count, _batches(one.state_batches),
    ),
    apis.DELETE_SHARE_GROUP_STATE: lambda topic_id, one: DeleteState(topic_id, one.partition),
    apis.READ_SHARE_GROUP_STATE_SUMMARY: lambda topic_id, one: ReadSummary(
        topic_id, one.partition, one.leader_epoch
    ),
}  # fmt: skip
SERVED = frozenset(_READERS)
"""The APIs of the share coordinator."""
API_OF: dict[type[Any], Api] = {
    InitializeState: apis.INITIALIZE_SHARE_GROUP_STATE,
    ReadState: apis.READ_SHARE_GROUP_STATE,
    WriteState: apis.WRITE_SHARE_GROUP_STATE,
    DeleteState: apis.DELETE_SHARE_GROUP_STATE,
    ReadSummary: apis.READ_SHARE_GROUP_STATE_SUMMARY,
}
"""The API of each kind of request."""


# ---- what the coordinator gets and gives -------------------------------------------------------


def asked_in(api: Api, body: Any) -> tuple[str, list[Request]]:
    """The group and the requests of a message.

    None if the group is not named, or a topic names no partition: Kafka's coordinator answers such
    a message with an empty list, too.
    """
    read = _READERS[api]
    if not body.group_id or not all(topic.partitions for topic in body.topics):
        return body.group_id, []
    return body.group_id, [
        read(topic.topic_id, one) for topic in body.topics for one in topic.partitions
    ]


def answer(api: Api, version: int, results: Sequence[Result]) -> Body:
    """The fields of a response; results of one topic are together, each partition once."""
    topics: dict[UUID, dict[int, Body]] = {}
    for one in results:
        topics.setdefault(one.topic_id, {})[one.partition] = _row(one, version)
    return {
        "results": [
            {"topic_id": topic_id, "partitions": list(rows.values())}
            for topic_id, rows in topics.items()
        ]
    }


def _row(one: Result, version: int) -> Body:
    row: Body = {
        "partition": one.partition, "error_code": one.error, "error_message": one.message
    }  # fmt: skip
    if one.error or isinstance(one, StateChanged):
        return row
    row |= {"state_epoch": one.state_epoch, "start_offset": one.start_offset}
    if isinstance(one, StateRead):
        row["state_batches"] = [batch._asdict() for batch in one.state_batches]
        return row
    row["leader_epoch"] = one.leader_epoch
    if version >= COUNT_SINCE:
        row["delivery_complete_count"] = one.delivery_complete_count
    return row


COUNT_SINCE = 1
"""The first version of ReadShareGroupStateSummary, and of WriteShareGroupState, that has the
delivery complete count."""


# ---- what another broker is asked, and answers -------------------------------------------------


def question(group_id: str, asked: Sequence[Request], version: int) -> Body:
    """The fields of a request about share partitions of a group, all of one kind."""
    topics: dict[UUID, list[Body]] = {}
    for one in asked:
        row: Body = one._asdict()
        if isinstance(one, WriteState):
            row["state_batches"] = [batch._asdict() for batch in one.state_batches]
            if version < COUNT_SINCE:
                del row["delivery_complete_count"]
        topics.setdefault(row.pop("topic_id"), []).append(row)
    return {
        "group_id": group_id,
        "topics": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()],
    }


def results_in(api: Api, body: Any) -> dict[tuple[UUID, int], Result]:
    """The results in an answer of another broker, by topic id and partition."""
    return {
        (topic.topic_id, row.partition): _result(api, topic.topic_id, row)
        for topic in body.results
        for row in topic.partitions
    }


def _result(api: Api, topic_id: UUID, row: Any) -> Result:
    try:
        error = ErrorCode(row.error_code)
    except ValueError:  # of a newer broker
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    about = topic_id, row.partition, error, row.error_message
    if api is apis.READ_SHARE_GROUP_STATE:
        if error:
            return StateRead(*about)
        batches = _batches(row.state_batches)
        return StateRead(*about, row.state_epoch, row.start_offset, batches)
    if api is apis.READ_SHARE_GROUP_STATE_SUMMARY:
        if error:
            return SummaryRead(*about)
        return SummaryRead(
            *about, row.state_epoch, row.leader_epoch, row.start_offset,
            row.delivery_complete_count,  # the default in version 0
        )  # fmt: skip
    return StateChanged(*about)
