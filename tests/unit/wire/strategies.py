"""Values for messages: random ones from the tables, and decoded structs as plain dicts."""

from __future__ import annotations

import base64
import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kafkalog.wire.message import Message
from kafkalog.wire.notation import FIXED, Field
from kafkalog.wire.values import ZERO_UUID, Struct

RANGES = {
    "bool": (False, True),
    "i8": (-(1 << 7), (1 << 7) - 1),
    "i16": (-(1 << 15), (1 << 15) - 1),
    "u16": (0, (1 << 16) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "u32": (0, (1 << 32) - 1),
    "i64": (-(1 << 63), (1 << 63) - 1),
}
ELEMENTS_MAX = 3
# One text is longer than a compact length of one byte can express.
TEXTS = ["", "a", "orders", "grüße", "\u4e16\u754c \U0001f600", "\0", "long" * 40]
BLOBS = [b"", b"\0", b"bytes", bytes(range(256))]

# ---- Hypothesis ------------------------------------------------------------------------


@cache
def values(message: Message, version: int) -> Any:
    """A strategy of dicts with every field that the version has."""
    return _fields(message.fields, version)


def _fields(fields: tuple[Field, ...], version: int) -> Any:
    return st.fixed_dictionaries(
        {f.name: _field(f, version) for f in fields if version in f.versions}
    )


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any]
    if field.kind == "struct":
        made = _fields(field.fields, version)
    elif field.kind == "f64":
        made = st.floats(allow_nan=False)
    elif field.kind == "bool":
        made = st.booleans()
    elif field.kind in FIXED:
        made = st.integers(*RANGES[field.kind])
    elif field.kind == "str":
        made = st.text(max_size=6)
    else:
        made = st.uuids() if field.kind == "uuid" else st.binary(max_size=6)
    if field.array:
        made = st.lists(made, max_size=ELEMENTS_MAX)
    return made | st.none() if version in field.nullable else made


# ---- random numbers: many messages in little time ------------------------------------------

Number = Callable[[random.Random, Field], Any]


def any_number(rng: random.Random, field: Field) -> Any:
    """Any value of a fixed-size type, often one at an end of its range."""
    if field.kind == "f64":
        return rng.choice([0.0, -1.5, rng.random(), 1e300])
    low, high = RANGES[field.kind]
    picked = rng.choice([low, high, rng.randint(low, high), low // 2])
    return bool(picked) if field.kind == "bool" else picked


def random_fields(
    rng: random.Random, fields: tuple[Field, ...], version: int, number: Number = any_number
) -> dict[str, Any]:
    """A dict with every field that the version has."""
    return {f.name: _random_field(rng, f, version, number) for f in fields if version in f.versions}


def _random_field(rng: random.Random, field: Field, version: int, number: Number) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.array:
        return [_one(rng, field, version, number) for _ in range(rng.randint(0, ELEMENTS_MAX))]
    return _one(rng, field, version, number)


def _one(rng: random.Random, field: Field, version: int, number: Number) -> Any:
    if field.kind == "struct":
        return random_fields(rng, field.fields, version, number)
    if field.kind in FIXED:
        return number(rng, field)
    if field.kind == "str":
        return rng.choice(TEXTS)
    if field.kind == "uuid":
        return rng.choice([ZERO_UUID, UUID(int=rng.getrandbits(128))])
    return rng.choice(BLOBS)


def plain(struct: Struct, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """The fields that the version has, in the form that an encoder takes."""
    found = {}
    for field in fields:
        if version in field.versions:
            value = getattr(struct, field.name)
            if field.kind == "struct" and value is not None:
                each = value if field.array else [value]
                inner = [plain(v, field.fields, version) for v in each]
                value = inner if field.array else inner[0]
            found[field.name] = value
    return found


# ---- Kafka's JSON of a message ----------------------------------------------------------


def as_json(fields: dict[str, Any], declared: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Our fields in Kafka's JSON, which omits tagged fields with their default."""
    return {
        f.kafka_name[:1].lower() + f.kafka_name[1:]: _json_of(fields[f.name], f, version)
        for f in declared
        if version in f.versions
    }


def _json_of(value: Any, field: Field, version: int) -> Any:
    if field.array and value is not None:
        return [_json_one(one, field, version) for one in value]
    return _json_one(value, field, version)


def _json_one(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "struct":
        return as_json(value, field.fields, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def found_in(theirs: Any, ours: Any) -> bool:
    """True if all fields that Kafka decoded equal the encoded ones; it does not show records."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(
            name.lower().endswith(("records", "recordssizeinbytes"))
            or found_in(value, ours.get(name))
            for name, value in theirs.items()
        )
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(found_in, theirs, ours))
    if isinstance(ours, float):  # Kafka's JSON has NaN as text, and NaN is not equal to itself
        number = float(theirs)
        return number == ours or (math.isnan(number) and math.isnan(ours))
    return bool(theirs == ours)
