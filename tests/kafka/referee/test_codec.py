"""Apache Kafka's own codec reads what we write, writes the same bytes, finds the same values."""

from __future__ import annotations

import json
import math
import random
import re

import pytest

from kafkalog.errors import InvalidRequest
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.message import Message
from kafkalog.wire.tables.metadata_records import METADATA_RECORDS
from kafkalog.wire.tables.offsets_records import OFFSETS_RECORDS
from kafkalog.wire.tables.other_records import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    CONTROL_RECORDS,
    TRANSACTION_RECORDS,
)
from tests.damage.fuzz.mutate import mutated
from tests.support import apache
from tests.unit.wire.strategies import as_json, found_in, plain, random_fields
from tests.unit.wire.test_golden import GOLDEN

pytestmark = [pytest.mark.java, pytest.mark.slow]

SAMPLES = 3
MARKERS = (0, 1)  # of transactions: their version precedes what Kafka's codec reads


def ask(lines: list[str]) -> list[str]:
    """Kafka's answer to each line."""
    try:
        said = apache.ask("Codec", text="\n".join(lines) + "\n")
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")
    return said.splitlines()


def messages() -> list[tuple[str, int, Message]]:
    """The messages for Kafka: its word for the kind, its number, our message."""
    return [
        *(("request", api.key, api.request) for api in apis.BY_KEY.values()),
        *(("response", api.key, api.response) for api in apis.BY_KEY.values()),
        *(("metadata", kind, message) for kind, message in METADATA_RECORDS.items()),
        *(("key", kind, key) for kind, (key, _) in OFFSETS_RECORDS.items()),
        *(("value", kind, value) for kind, (_, value) in OFFSETS_RECORDS.items()),
        *(("transaction", number, m) for number, m in enumerate(TRANSACTION_RECORDS[0])),
        *(("control", kind, m) for kind, (_, m) in CONTROL_RECORDS.items() if kind not in MARKERS),
        ("member", 0, CONSUMER_SUBSCRIPTION),
        ("member", 1, CONSUMER_ASSIGNMENT),
    ]


def test_kafka_reads_and_writes_the_same(rng: random.Random) -> None:
    asked = []
    for kind, number, message in messages():
        for version in message.versions:
            for sample in range(SAMPLES):
                fields = random_fields(rng, message.fields, version) if sample else {}
                asked.append((message, version, message.encode(version, fields), kind, number))
    answers = ask([f"{kind} {number} {v} {b.hex()}" for _, v, b, kind, number in asked])
    assert len(answers) == len(asked)
    for (message, version, data, _, _), answer in zip(asked, answers, strict=True):
        where = f"{message.title} v{version}: {data.hex()}"
        written, _, text = answer.partition(" ")
        assert written == data.hex(), f"{where}: {answer}"
        found = plain(message.decode(version, data)[0], message.fields, version)
        ours = as_json(found, message.fields, version)
        assert found_in(json.loads(text), ours), f"{where}: {text}"


STRICTER = re.compile(
    r"wanted (UTF-8|the size of its value|one of 32 bits)$|tagged fields: found length \d+"
)
"""Where Kafka is less strict: it uses U+FFFD for invalid UTF-8, ignores the bits of a varint above
32, and does not check the size that a tagged field claims."""

LOOSER = re.compile(r"Tag \d+ is not valid for version|Invalid raw tag field list")
"""Where Kafka is stricter: a tag of later versions must not be in an earlier one, and tags must
be in order (when it writes them again).  We do not know these tags, and KIP-482 skips them."""


def test_kafka_refuses_the_same(rng: random.Random) -> None:
    """Both accept the same mutated messages, and find the same values in them."""
    asked = []
    for kind, number, message in messages():
        for version in message.versions:
            data = message.encode(version, random_fields(rng, message.fields, version))
            for _ in range(SAMPLES):
                asked.append((message, version, mutated(data, rng), kind, number))
    answers = ask([f"{kind} {number} {v} {b.hex()}" for _, v, b, kind, number in asked])
    taken = refused = 0
    for (message, version, data, _, _), answer in zip(asked, answers, strict=True):
        where = f"{message.title} v{version}: {data.hex()}: {answer}"
        try:
            found, end = message.decode(version, data)
        except InvalidRequest as error:
            refused += 1
            assert answer.startswith("failed: ") or STRICTER.search(str(error)), f"{error} {where}"
            continue
        taken += 1
        if LOOSER.search(answer):
            continue
        if end < len(data):
            assert answer == f"failed: {len(data) - end} bytes are left", where
        else:
            ours = as_json(plain(found, message.fields, version), message.fields, version)
            assert found_in(json.loads(answer.partition(" ")[2]), ours), where
    assert taken > 100 and refused > 100


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_floats_that_are_no_common_numbers(value: float) -> None:
    message = apis.DESCRIBE_CLIENT_QUOTAS.response
    fields = {"entries": [{"values": [{"key": "rate", "value": value}]}]}
    data = message.encode(1, fields)
    (answer,) = ask([f"response {apis.DESCRIBE_CLIENT_QUOTAS.key} 1 {data.hex()}"])
    written, _, text = answer.partition(" ")
    assert written == data.hex()
    ours = as_json(plain(message.decode(1, data)[0], message.fields, 1), message.fields, 1)
    assert found_in(json.loads(text), ours), text


def test_golden_messages_are_kafkas() -> None:
    asked = [f"{g.kind} {g.api.key} {g.version} {g.data}" for g in GOLDEN]
    for golden, answer in zip(GOLDEN, ask(asked), strict=True):
        assert answer.partition(" ")[0] == golden.data, f"{golden}: {answer}"


def test_error_codes_are_kafkas() -> None:
    answers = ask([f"retriable {code.value} -" for code in ErrorCode])
    for code, answer in zip(ErrorCode, answers, strict=True):
        name, retriable = answer.split()
        assert (name, retriable == "true") == (code.name, code.retriable)
    beyond = f"retriable {max(ErrorCode) + 1} -"
    assert ask([beyond]) == ["UNKNOWN_SERVER_ERROR false"]  # Kafka has no higher code either
