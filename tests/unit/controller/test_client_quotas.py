"""Which quotas may be set, and which are shown, with Kafka's errors."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.controller.client_quotas import alter_client_quotas, describe_client_quotas
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.metadata.requests import (
    QuotaChange,
    QuotaChanges,
    QuotaEntity,
    QuotaFilter,
    QuotasAsked,
)
from kafkalog.wire.error_codes import ErrorCode

ALICE: QuotaEntity = (("user", "alice"),)
EVERY_USER: QuotaEntity = (("user", None),)
APP: QuotaEntity = (("client-id", "app"),)
ALICE_APP: QuotaEntity = (("client-id", "app"), ("user", "alice"))
HOST: QuotaEntity = (("ip", "10.0.0.1"),)
ANY_HOST: QuotaEntity = (("ip", None),)


def image(**quotas: Any) -> MetadataImage:
    return empty_image("c", 1)._replace(quotas=quotas.get("quotas", {}))


def alter(
    *changes: tuple[QuotaEntity, dict[str, float | None]],
    quotas: Any = None,
    validate_only: bool = False,
) -> tuple[list[Any], list[str | None]]:
    asked = QuotaChanges(
        [QuotaChange(entity, list(values.items())) for entity, values in changes], validate_only
    )
    records, results = alter_client_quotas(
        image(quotas=quotas or {}), asked, lambda name: name[0].isdigit()
    )
    assert all(bool(one["error_code"]) == bool(one["error_message"]) for one in results)
    assert {one["error_code"] for one in results} <= {0, ErrorCode.INVALID_REQUEST}
    return records, [one["error_message"] for one in results]


def test_a_quota_is_set_changed_and_removed() -> None:
    records, errors = alter((ALICE, {"producer_byte_rate": 1000.0, "request_percentage": 0.5}))
    assert errors == [None]
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    assert records == [
        ("ClientQuotaRecord", {"entity": entity, "key": "producer_byte_rate", "value": 1000.0}),
        ("ClientQuotaRecord", {"entity": entity, "key": "request_percentage", "value": 0.5}),
    ]
    known = {ALICE: {"producer_byte_rate": 1000.0}}
    assert alter((ALICE, {"producer_byte_rate": 1000.0}), quotas=known) == ([], [None])
    records, _ = alter((ALICE, {"producer_byte_rate": None}), quotas=known)
    assert records == [
        ("ClientQuotaRecord", {"entity": entity, "key": "producer_byte_rate", "remove": True})
    ]
    assert alter((ALICE, {"consumer_byte_rate": None}), quotas=known) == ([], [None])
    assert alter((ALICE, {"producer_byte_rate": 5.0}), validate_only=True) == ([], [None])


@pytest.mark.parametrize("entity", [ALICE, EVERY_USER, APP, (("client-id", None),), ALICE_APP,
                                    (("client-id", None), ("user", None))])  # fmt: skip
@pytest.mark.parametrize(
    "key",
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"],
)
def test_users_and_clients_have_four_quotas(entity: QuotaEntity, key: str) -> None:
    assert alter((entity, {key: 1.0}))[1] == [None]
    assert alter((HOST, {key: 1.0}))[1] == [f"Invalid configuration key {key}"]


def test_addresses_have_one() -> None:
    key = "connection_creation_rate"
    assert alter((HOST, {key: 1.0}), (ANY_HOST, {key: 2.0}))[1] == [None, None]
    assert alter((ALICE, {key: 1.0}))[1] == [f"Invalid configuration key {key}"]
    host = (("ip", "nowhere"),)
    assert alter((host, {key: 1.0}))[1] == ["nowhere is not a valid IP or resolvable host."]
    mixed = (("ip", "10.0.0.1"), ("user", "alice"))
    (error,) = alter((mixed, {key: 1.0}))[1]
    assert error is not None and error.startswith("Invalid quota entity combination")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ("consumer_byte_rate", 1e19,
         "Proposed value for consumer_byte_rate is too large for a LONG."),
        ("consumer_byte_rate", float("nan"), "consumer_byte_rate cannot be a fractional value."),
        ("request_percentage", 0.0, "Quota request_percentage must be greater than 0"),
        ("nonsense", 1.0, "Invalid configuration key nonsense"),
    ],
)  # fmt: skip
def test_values_are_bounded(key: str, value: float, why: str) -> None:
    assert alter((ALICE, {"request_percentage": 1.0, key: value})) == ([], [why])


def test_an_address_has_a_whole_number_of_32_bits() -> None:
    key = "connection_creation_rate"
    assert alter((HOST, {key: float(1 << 31)}))[1] == [
        f"Proposed value for {key} is too large for an INT."
    ]


@pytest.mark.parametrize(
    ("entity", "why"),
    [
        ((), "Invalid empty client quota entity"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", ""),), "Empty user not supported"),
    ],
)
def test_entities_are_checked(entity: QuotaEntity, why: str) -> None:
    assert alter((entity, {"producer_byte_rate": 1.0}))[1] == [why]


def test_an_entity_that_is_named_twice_is_refused_once_its_first_change_is_made() -> None:
    """As in Kafka: there is one result for both."""
    records, errors = alter(
        (ALICE, {"producer_byte_rate": 1.0}), (ALICE, {"consumer_byte_rate": 2.0})
    )
    assert [fields["key"] for _, fields in records] == ["producer_byte_rate"]
    assert errors == ["Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"]
    twice = QuotaChange(ALICE, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])
    records, results = alter_client_quotas(image(), QuotaChanges([twice], False), bool)
    assert (records, results[0]["error_code"]) == ([], ErrorCode.INVALID_REQUEST)


QUOTAS = {one: {"producer_byte_rate": 1.0}
          for one in (ALICE, EVERY_USER, APP, ALICE_APP, HOST)}  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, list(QUOTAS)),
        ([], True, []),
        ([("user", 0, "alice")], False, [ALICE, ALICE_APP]),
        ([("user", 0, "alice")], True, [ALICE]),
        ([("user", 1, None)], False, [EVERY_USER]),
        ([("user", 2, None)], True, [ALICE, EVERY_USER]),
        ([("user", 2, None), ("client-id", 0, "app")], True, [ALICE_APP]),
        ([("ip", 2, None)], False, [HOST]),
        ([("ip", 1, None)], False, []),
    ],
)
def test_filters_choose_entities(filters: Any, strict: bool, found: list[QuotaEntity]) -> None:
    asked = QuotasAsked([QuotaFilter(*one) for one in filters], strict)
    entries = describe_client_quotas(image(quotas=QUOTAS), asked)
    shown = [
        tuple(sorted((part["entity_type"], part["entity_name"]) for part in one["entity"]))
        for one in entries
    ]
    assert shown == found


@pytest.mark.parametrize(
    ("filters", "code", "why"),
    [
        ([("", 0, "x")], 42, "Invalid empty entity type."),
        ([("user", 0, "x"), ("user", 2, None)], 42,
         "Entity type user cannot appear more than once in the filter."),
        ([("group", 0, "x")], 35, "Unsupported entity type group"),
        ([("user", 0, None)], 42,
         "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "x")], 42,
         "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "x")], 42,
         "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        ([("user", 2, None), ("ip", 2, None)], 42,
         "Invalid entity filter component combination. IP filter component should not be used "
         "with user or clientId filter component."),
    ],
)  # fmt: skip
def test_filters_are_checked(filters: Any, code: int, why: str) -> None:
    asked = QuotasAsked([QuotaFilter(*one) for one in filters], False)
    with pytest.raises(Refused) as refused:
        describe_client_quotas(image(), asked)
    assert (refused.value.code, str(refused.value)) == (code, why)
