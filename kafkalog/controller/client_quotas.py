"""Which quotas of clients may be set, and which ones a request shows.

Pure: AlterClientQuotas and DescribeClientQuotas, with Kafka's errors and messages.
Source: Kafka's ClientQuotaControlManager, ClientQuotasImage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import (
    QuotaChange,
    QuotaChanges,
    QuotaEntity,
    QuotaFilter,
    QuotasAsked,
    Result,
)
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "CLIENT_ID", "CONNECTION_RATE", "CONSUMER_RATE", "IP", "MUTATION_RATE", "PRODUCER_RATE",
    "REQUEST_PERCENTAGE", "USER", "alter_client_quotas", "describe_client_quotas", "entity_text",
]  # fmt: skip

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of an entity."""
PRODUCER_RATE, CONSUMER_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
EXACT, DEFAULT, ANY = 0, 1, 2
_FRACTION = 1e-6
"""A value of a whole-number quota may be off by this."""


class _Kind(NamedTuple):
    """The type of a quota's value, as Kafka's messages name it."""

    article: str
    name: str
    high: float


_LONG, _INT = _Kind("a", "LONG", (1 << 63) - 1), _Kind("an", "INT", (1 << 31) - 1)
_DOUBLE = _Kind("a", "DOUBLE", math.inf)
_OF_CLIENTS: Mapping[str, _Kind] = {
    PRODUCER_RATE: _LONG, CONSUMER_RATE: _LONG, REQUEST_PERCENTAGE: _DOUBLE, MUTATION_RATE: _DOUBLE,
}  # fmt: skip
_OF_ADDRESSES: Mapping[str, _Kind] = {CONNECTION_RATE: _INT}
_ORDER = (CLIENT_ID, USER, IP)
"""The order of the types in Kafka's messages and answers."""


def entity_text(entity: QuotaEntity) -> str:
    """An entity as Kafka's messages show it."""
    pairs = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in _put(entity))
    return f"ClientQuotaEntity(entries={{{pairs}}})"


def _put(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    return sorted(entity, key=lambda pair: _ORDER.index(pair[0]) if pair[0] in _ORDER else -1)


def _fields(entity: QuotaEntity) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in _put(entity)]


def _refused(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


# ---- AlterClientQuotas -------------------------------------------------------------------------


def alter_client_quotas(
    image: MetadataImage, asked: QuotaChanges, is_address: Callable[[str], bool]
) -> tuple[list[tuple[str, Any]], list[Result]]:
    """The records of a change, and its response's `entries`, one per entity.

    `is_address`: True for an IP address, or a name that has one.  As in Kafka, an entity that is
    named twice is refused, but its first change is made.
    """
    records: list[tuple[str, Any]] = []
    results: dict[QuotaEntity, Result] = {}
    for change in asked.changes:
        result: Result = {"error_code": 0, "error_message": None, "entity": _fields(change.entity)}
        try:
            if change.entity in results or _repeats(change):
                raise _refused(f"Ignoring duplicate entity {entity_text(change.entity)}")
            found = list(_records(image, change, is_address))
            records += () if asked.validate_only else found
        except Refused as error:
            result.update(error_code=int(error.code), error_message=str(error))
        results[change.entity] = result
    return records, list(results.values())


def _repeats(change: QuotaChange) -> bool:
    return len({key for key, _ in change.values}) < len(change.values)


def _records(
    image: MetadataImage, change: QuotaChange, is_address: Callable[[str], bool]
) -> Iterator[tuple[str, Any]]:
    """The records for one entity.

    Raises: Refused.
    """
    kinds = _kinds(dict(change.entity), is_address)
    present = image.quotas.get(change.entity, {})
    for key, value in change.values:
        fields: dict[str, Any] = {"entity": _fields(change.entity), "key": key}
        if value is None:
            if key in present:
                yield "ClientQuotaRecord", {**fields, "remove": True}
            continue
        _check_value(kinds, key, value)
        if present.get(key) != value:
            yield "ClientQuotaRecord", {**fields, "value": value}


def _kinds(entity: Mapping[str, str | None], is_address: Callable[[str], bool]
           ) -> Mapping[str, _Kind]:  # fmt: skip
    """The quotas that an entity may have.

    Raises: Refused.
    """
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in _ORDER:
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP not in entity:
        return _OF_CLIENTS
    if len(entity) > 1:
        raise _refused(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = entity[IP]
    if address is not None and not is_address(address):
        raise _refused(f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _check_value(kinds: Mapping[str, _Kind], key: str, value: float) -> None:
    if key not in kinds:
        raise _refused(f"Invalid configuration key {key}")
    if value <= 0.0:
        raise _refused(f"Quota {key} must be greater than 0")
    kind = kinds[key]
    if kind is _DOUBLE:
        return
    if value > kind.high:
        raise _refused(f"Proposed value for {key} is too large for {kind.article} {kind.name}.")
    if math.isnan(value) or value % 1.0 > _FRACTION:
        raise _refused(f"{key} cannot be a fractional value.")


# ---- DescribeClientQuotas ----------------------------------------------------------------------


def describe_client_quotas(image: MetadataImage, asked: QuotasAsked) -> list[Result]:
    """The response's `entries`.

    Raises: Refused for an invalid filter.
    """
    _check_filters(asked.filters)
    return [
        {
            "entity": _fields(entity),
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for entity, values in image.quotas.items()
        if _matches(dict(entity), asked)
    ]


def _check_filters(filters: Collection[QuotaFilter]) -> None:
    seen: set[str] = set()
    for one in filters:
        if not one.type:
            raise _refused("Invalid empty entity type.")
        if one.type in seen:
            raise _refused(f"Entity type {one.type} cannot appear more than once in the filter.")
        if one.type not in _ORDER:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {one.type}")
        if one.match == EXACT and one.name is None:
            raise _refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if one.match in (DEFAULT, ANY) and one.name is not None:
            kind = "DEFAULT" if one.match == DEFAULT else "SPECIFIED"
            raise _refused(
                f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
            )
        if one.match not in (EXACT, DEFAULT, ANY):
            raise _refused(f"Unknown match type {one.match}")
        seen.add(one.type)
    if IP in seen and len(seen) > 1:
        raise _refused(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


def _matches(entity: Mapping[str, str | None], asked: QuotasAsked) -> bool:
    if asked.strict and len(entity) != len(asked.filters):
        return False
    return all(
        one.type in entity and (one.match == ANY or entity[one.type] == one.name)
        for one in asked.filters
    )
