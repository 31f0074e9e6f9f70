"""Two independent codecs, kafka-python's and kio's, read what we write and write the same."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import importlib.util
import io
import pkgutil
import random
from functools import cache, lru_cache
from typing import Any

import pytest

from kafkalog.wire import apis
from kafkalog.wire.message import Message
from kafkalog.wire.notation import Field
from kafkalog.wire.values import ZERO_UUID, Struct
from tests.unit.wire.strategies import RANGES, any_number, random_fields

SAMPLES = 3

kafka_protocol = pytest.importorskip("kafka.protocol")
with_kio = pytest.mark.skipif(
    importlib.util.find_spec("kio") is None,  # it needs Python 3.11
    reason="kio is not installed",
)


@lru_cache(maxsize=1)
def kafka_python() -> dict[str, Any]:
    """Its classes by Kafka's names, such as "MetadataRequest"."""
    found = {}
    for module in pkgutil.walk_packages(kafka_protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "stubs" not in module.name:
            for name, thing in vars(importlib.import_module(module.name)).items():
                if isinstance(thing, type) and getattr(thing, "_json", None):
                    found[name] = thing
    return found


def both(api: apis.Api) -> list[tuple[str, Message]]:
    return [(f"{api.name}Request", api.request), (f"{api.name}Response", api.response)]


RENAMED = {"generation_id_or_member_epoch": "generation_id"}
"""Fields of TxnOffsetCommit for which kafka-python uses an older Kafka's names."""

PAIRS = [
    (theirs, message)
    for api in apis.BY_KEY.values()
    for name, message in both(api)
    if (theirs := kafka_python().get(name)) is not None
]


def agree(ours: Any, theirs: Any, fields: tuple[Field, ...], version: int) -> None:
    """Check that their object equals our struct; kio has its own names in the same order."""
    present = [field for field in fields if version in field.versions]
    kio = dataclasses.is_dataclass(theirs)
    names = [f.name for f in (dataclasses.fields(theirs) if kio else present)]
    for field, name in zip(present, names, strict=True):
        if not kio and field.name.endswith("authorized_operations"):
            continue  # kafka-python turns these bits into sets with other names
        if not kio and not hasattr(theirs, name):
            name = RENAMED[name]
        left, right = getattr(ours, field.name), getattr(theirs, name)
        if field.array and left is not None:
            assert len(left) == len(right), field
            pairs = list(zip(left, right, strict=True))
        else:
            pairs = [(left, right)]
        for a, b in pairs:
            if isinstance(a, Struct):
                agree(a, b, field.fields, version)
            else:
                assert a == comparable(b, field), field


def comparable(value: Any, field: Field) -> Any:
    """Their value in our form: kio turns numbers into times, and a missing id into null."""
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if value is None and field.kind == "uuid":
        return ZERO_UUID
    if value is None and field.kind == "i64":
        return -1
    return bytes(value) if isinstance(value, memoryview) else value


def test_kafka_python_agrees(rng: random.Random) -> None:
    for theirs, message in PAIRS:
        for version in message.versions:
            if version > theirs.max_version:
                continue
            for _ in range(SAMPLES):
                fields = random_fields(rng, message.fields, version)
                if message is apis.API_VERSIONS.response:
                    fields["error_code"] = 0  # with an error it is read as v0
                encoded = message.encode(version, fields)
                found = theirs.decode(encoded, version=version)
                agree(message.decode(version, encoded)[0], found, message.fields, version)
                found._header = None  # it has one if it was read with one
                assert bytes(found.encode(version=version)) == encoded


def kio_number(rng: random.Random, field: Field) -> Any:
    """Numbers that kio accepts: existing error codes, times that Python's datetime can express."""
    if field.name.endswith("error_code"):
        return rng.randint(0, 100)
    if field.kind in ("i32", "i64") and field.name.endswith(("_ms", "timestamp")):
        return rng.randint(0, min(RANGES[field.kind][1], 1 << 40))
    return any_number(rng, field)


@cache
def kio_class(message: Message, key: int, version: int) -> Any:
    """Its class for a version of a message; None if it has none."""
    from kio import index

    load = "load_request_schema" if message.title.endswith("request") else "load_response_schema"
    try:
        return getattr(index, load)(key, version)
    except index.KioIndexError:
        return None


SIDES = [(api.key, message) for api in apis.BY_KEY.values() for _, message in both(api)]


@with_kio
def test_kio_knows_nearly_all_that_we_know() -> None:
    """So that the comparison means something."""
    known = [kio_class(m, key, version) for key, m in SIDES for version in m.versions]
    assert known.count(None) < len(known) / 10


@with_kio
def test_kio_agrees(rng: random.Random) -> None:
    from kio import serial

    for key, message in SIDES:
        for version in message.versions:
            theirs = kio_class(message, key, version)
            if theirs is None:
                continue
            read, write = serial.entity_reader(theirs), serial.entity_writer(theirs)
            for _ in range(SAMPLES):
                fields = random_fields(rng, message.fields, version, kio_number)
                encoded = message.encode(version, fields)
                found, size = read(encoded, 0)
                assert size == len(encoded)
                agree(message.decode(version, encoded)[0], found, message.fields, version)
                written = io.BytesIO()
                write(written, found)
                assert written.getvalue() == encoded
