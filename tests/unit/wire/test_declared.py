"""The tables match Kafka's own declarations, field by field and version by version."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire import apis
from kafkalog.wire.message import Message
from kafkalog.wire.notation import Field
from kafkalog.wire.tables import controller, metadata_records, offsets_records, other_records
from tests.support import apache
from tests.unit.wire import declared
from tests.unit.wire.declared import Resolved

RECORDS = [
    *metadata_records.METADATA_RECORDS.values(),
    *(message for pair in offsets_records.OFFSETS_RECORDS.values() for message in pair),
    *(message for pair in other_records.TRANSACTION_RECORDS.values() for message in pair),
    other_records.CONSUMER_SUBSCRIPTION,
    other_records.CONSUMER_ASSIGNMENT,
    *(message for _, message in list(other_records.CONTROL_RECORDS.values())[1:]),
]


@pytest.fixture(scope="module")
def kafka() -> dict[str, dict[str, Any]]:
    try:
        return declared.messages()
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")


def ours(fields: tuple[Field, ...], version: int) -> tuple[Resolved, ...]:
    """Our table, resolved for one version."""
    return tuple(
        Resolved(
            field.kafka_name,
            field.kind,
            field.array,
            version in field.nullable,
            field.tag,
            "null" if field.default_null else None if plain_empty(field) else field.default,
            ours(field.fields, version),
        )
        for field in fields
        if version in field.versions
    )


def plain_empty(field: Field) -> bool:
    return field.array or field.kind in ("struct", "bytes", "uuid")


def compare(message: Message, theirs: dict[str, Any]) -> None:
    valid = declared.versions(theirs["validVersions"])
    flexible = declared.versions(theirs["flexibleVersions"])
    assert message.versions.start == valid.start
    assert message.versions.stop - 1 == valid.stop - 1
    for version in valid:
        assert (version >= message.first_flexible) is (version in flexible)
        assert ours(message.fields, version) == declared.resolve(theirs, version), version


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_an_api_is_as_kafka_declares_it(api: apis.Api, kafka: dict[str, Any]) -> None:
    request, response = kafka[f"{api.name}Request"], kafka[f"{api.name}Response"]
    assert api.key == request["apiKey"] == response["apiKey"]
    compare(api.request, request)
    compare(api.response, response)


@pytest.mark.parametrize(
    "api",
    [
        controller.LEADER_AND_ISR, controller.STOP_REPLICA, controller.UPDATE_METADATA,
        controller.CONTROLLED_SHUTDOWN, apis.ALTER_PARTITION, apis.ALLOCATE_PRODUCER_IDS,
        apis.WRITE_TXN_MARKERS, apis.OFFSET_FOR_LEADER_EPOCH,
    ],
    ids=lambda api: api.name,
)  # fmt: skip
def test_requests_among_zookeeper_brokers_follow_kafka_3_9(api: apis.Api) -> None:
    """The newest version in Kafka 3.9, which it uses, and the older ones that we know."""
    try:
        kafka = declared.messages_with_zookeeper()
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")
    for message, name in ((api.request, "Request"), (api.response, "Response")):
        theirs = kafka[api.name + name]
        assert api.key == theirs["apiKey"]
        valid = declared.versions(theirs["validVersions"])
        flexible = declared.versions(theirs["flexibleVersions"])
        assert valid.stop - 1 in message.versions
        for version in {*message.versions} & {*valid}:
            assert (version >= message.first_flexible) is (version in flexible)
            assert ours(message.fields, version) == declared.resolve(theirs, version), version


@pytest.mark.parametrize("message", RECORDS, ids=lambda message: message.title)
def test_a_record_is_as_kafka_declares_it(message: Message, kafka: dict[str, Any]) -> None:
    theirs = kafka[message.title]
    if message.title == "EndTxnMarker":
        # As in other records, the version comes first; here Kafka does not declare it as a field.
        version = {"name": "Version", "type": "int16", "versions": "0+"}
        theirs = {**theirs, "fields": [version, *theirs["fields"]]}
    compare(message, theirs)


def test_no_message_is_left_out(kafka: dict[str, Any]) -> None:
    known = {
        f"{api.name}{side}" for api in apis.BY_KEY.values() for side in ("Request", "Response")
    }
    known |= {message.title for message in RECORDS}
    headers_and_principals = {"RequestHeader", "ResponseHeader", "DefaultPrincipalData"}
    of_the_core = {"AbortedTxn", "ControlRecordTypeSchema"}  # C reads and writes these
    assert set(kafka) - known == headers_and_principals | of_the_core


def test_kinds_of_records_have_kafkas_numbers(kafka: dict[str, Any]) -> None:
    for kind, message in metadata_records.METADATA_RECORDS.items():
        assert kafka[message.title]["apiKey"] == kind
    keyed = (offsets_records.OFFSETS_RECORDS, other_records.TRANSACTION_RECORDS)
    for kinds in keyed:
        for kind, (key, value) in kinds.items():
            assert kafka[key.title]["apiKey"] == kafka[value.title]["apiKey"] == kind


def test_a_wrong_table_is_found(kafka: dict[str, Any]) -> None:
    """The comparison notices a missing version, a wrong type, default, tag and nullability."""
    right = "Name:str, TopicId:uuid"
    compare(Message("TopicRecord", "0", 0, right), kafka["TopicRecord"])
    for wrong in (
        "Name:str",
        "TopicId:uuid, Name:str",
        "Name:str(null), TopicId:uuid",
        "Name:str, TopicId:uuid(tag0)",
        "Name:bytes, TopicId:uuid",
        "Name:str(=x), TopicId:uuid",
    ):
        with pytest.raises(AssertionError):
            compare(Message("TopicRecord", "0", 0, wrong), kafka["TopicRecord"])
    with pytest.raises(AssertionError):
        compare(Message("TopicRecord", "0-1", 0, right), kafka["TopicRecord"])
    with pytest.raises(AssertionError):
        compare(Message("TopicRecord", "0", None, right), kafka["TopicRecord"])
