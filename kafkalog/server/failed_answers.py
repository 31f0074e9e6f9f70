"""An error as the answer to any request: Kafka's code, wherever the API's response has a place.

Kafka writes a getErrorResponse for each request.  Here the response's schema decides: an error
code for the whole, and one for each item of the request, named as the request named it.  Fields
of the whole are not echoed, except the protocol name of a group's member: credentials and producer
ids are no outcome.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.notation import Field
from kafkalog.wire.values import Struct

__all__ = ["UNEXPECTED", "failed_answer"]

UNEXPECTED = "The server experienced an unexpected error when processing the request."
"""Kafka's sentence; ours goes to the broker's log, which no client reads."""

CODES = ("error_code", "partition_error_code")
"""Names of error code fields; other codes (of acknowledgements, of settings) do not count."""

_REQUEST_LISTS = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names", "creations", "feature_updates", "users"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "transaction_states": ("transactional_ids",),
}
"""Lists in responses and the request lists that they answer, where their names differ."""
_SAME = {
    "index": "partition", "partition": "partition_index", "partition_index": "partition",
    "topic_name": "name", "user": "name",
}  # fmt: skip
_NAMES = frozenset({
    "entity", "feature", "group_id", "group_instance_id", "id", "index", "key", "member_id", "name",
    "partition", "partition_id", "partition_index", "producer_id", "resource_name",
    "resource_type", "topic", "topic_id", "topic_name", "transactional_id", "user",
})  # fmt: skip
"""Fields that identify an item.  A requested offset or epoch is not an answer."""
_UNKNOWN = {
    "base_offset": -1, "committed_offset": -1, "committed_leader_epoch": -1, "high_watermark": -1,
    "low_watermark": -1, "aborted_transactions": None,
}  # fmt: skip
"""Kafka's values for "unknown", where a client would believe 0 or an empty list."""
_ALL_WHEN_EMPTY = (apis.DESCRIBE_TOPIC_PARTITIONS.key,)
"""APIs in which an empty list means everything; in others it means nothing.  Metadata 0 too."""
_KINDS = {
    "i8": (int,), "i16": (int,), "i32": (int,), "i64": (int,), "str": (str,), "uuid": (UUID,),
    "struct": (list,),
}  # fmt: skip


def failed_answer(
    api: Api, version: int, body: Any, code: ErrorCode, message: str
) -> dict[str, Any] | None:
    """The fields of a response with `code`; None if it has no place for one.

    There is none if the client asked for everything and only items have a code: it would believe
    an empty list.  If it asked for no item, none has failed, and the list is empty.
    """
    filled = _Filled(version, code, message)
    fields = [field for field in api.response.fields if version in field.versions]
    empty_is_all = api.key in _ALL_WHEN_EMPTY or (api is apis.METADATA and version == 0)
    answer: dict[str, Any] = {}
    said = False
    for field in fields:
        if field.name in CODES:
            answer[field.name] = code
            said = True
        elif field.name == "error_message":
            answer[field.name] = message
        elif field.name == "producer_epoch":
            answer[field.name] = -1
        elif api is apis.JOIN_GROUP and field.name == "member_id":
            answer[field.name] = body.member_id
        elif field.array and _has_code(field, version):
            items = _items(api, field.name, body)
            answer[field.name] = [filled(field.fields, item) for item in items or ()]
            said = said or bool(items) or (items is not None and not empty_is_all)
    return answer if said else None


class _Filled:
    """Builds the items of a response, in one version and with one error."""

    def __init__(self, version: int, code: ErrorCode, message: str) -> None:
        self._version = version
        self._error = {**dict.fromkeys(CODES, code), "error_message": message, **_UNKNOWN}

    def __call__(self, fields: Iterable[Field], item: Any) -> dict[str, Any]:
        """The fields of the item that answers `item`."""
        found: dict[str, Any] = {}
        for field in fields:
            if self._version not in field.versions:
                continue
            if field.name in self._error:
                found[field.name] = self._error[field.name]
            elif field.array and _has_code(field, self._version):
                items = _request_items(field.name, item) or ()
                found[field.name] = [self(field.fields, one) for one in items]
            elif field.kind == "records":
                found[field.name] = b""
            elif (value := self._named(field, item)) is not None:
                found[field.name] = value
        return found

    def _named(self, field: Field, item: Any) -> Any:
        """The item's identifier from the request, if this field is one."""
        if field.name not in _NAMES:
            return None
        if not isinstance(item, Struct):
            found = item
        else:
            found = getattr(item, field.name, None)
            if found is None and field.name in _SAME:
                found = getattr(item, _SAME[field.name], None)
        return found if type(found) in _KINDS[field.kind] else None


def _has_code(field: Field, version: int) -> bool:
    return any(
        version in inner.versions and (inner.name in CODES or _has_code(inner, version))
        for inner in field.fields
    )


def _items(api: Api, name: str, body: Any) -> list[Any] | None:
    """The request items that a top-level list of the response answers; None for everything."""
    if api is apis.ALTER_REPLICA_LOG_DIRS:  # answers without the directories
        return [topic for directory in body.dirs for topic in directory.topics]
    if api is apis.DESCRIBE_LOG_DIRS:  # there is one, whatever the client asked for
        return [None]
    if api is apis.ALTER_USER_SCRAM_CREDENTIALS:  # a user is answered once
        changes = (*body.deletions, *body.upsertions)
        return list({change.name: change for change in changes}.values())
    return _request_items(name, body)


def _request_items(name: str, item: Any) -> list[Any] | None:
    found = [getattr(item, source, None) for source in (*_REQUEST_LISTS.get(name, ()), name)]
    lists = [one for one in found if isinstance(one, list)]
    return next(filter(None, lists), lists[0] if lists else None)
