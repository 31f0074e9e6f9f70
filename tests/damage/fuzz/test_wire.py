"""The wire codec under mutated bytes: a value or InvalidRequest, and little memory.

An accepted value can be encoded, and the encoded bytes decode to the same value.
"""

import contextlib
import random
import tracemalloc

import pytest

from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.wire import apis, headers, records
from tests.damage.fuzz.mutate import mutated
from tests.support.effort import SEED, patience_s, rounds
from tests.unit.wire.strategies import random_fields
from tests.unit.wire.test_round_trip import VERSIONS

REFUSALS = (InvalidRequest, UnsupportedVersion)

pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(patience_s(900))]


def test_messages():
    draw = random.Random(SEED)
    taken = refused = 0
    for _ in rounds(2000):
        message, version = draw.choice(VERSIONS)
        data = mutated(message.encode(version, random_fields(draw, message.fields, version)), draw)
        try:
            found, end = message.decode(version, data)
        except InvalidRequest:
            refused += 1
            continue
        taken += 1
        assert end <= len(data)
        again = message.encode(version, found)
        # Written bytes, since not-a-number is not itself.
        assert message.encode(version, message.decode(version, again)[0]) == again, data.hex()
    assert taken > 10 and refused > 10


def test_memory_of_messages():
    """A message takes at most a small multiple of its bytes, whatever it claims."""
    draw = random.Random(-SEED)
    for message, version in VERSIONS:
        message.decode(version, message.encode(version, {}))  # creates the codec
    tracemalloc.start()
    try:
        for _ in rounds(2000):
            message, version = draw.choice(VERSIONS)
            fields = random_fields(draw, message.fields, version)
            data = mutated(message.encode(version, fields), draw)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(InvalidRequest):
                message.decode(version, data)
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < 100_000 + 100 * len(data), f"{message.title} v{version}: {data.hex()}"
    finally:
        tracemalloc.stop()


def test_headers():
    draw = random.Random(SEED)
    taken = refused = 0
    for _ in rounds(1000):
        api = draw.choice(list(apis.BY_KEY.values()))
        version = draw.choice(list(api.versions))
        whole = headers.encode_request_header(api, version, draw.getrandbits(31), "client-1")
        data = mutated(whole, draw)
        try:
            header = headers.decode_request_header(data)
        except InvalidRequest:
            refused += 1
            continue
        taken += 1
        assert header.pos <= len(data)
        assert header.key in apis.BY_KEY
    assert taken > 10 and refused > 10


def internal_records(draw):
    """A decoder and the bytes of a record for it."""
    kind = draw.choice(["metadata", "key", "value", "control", "member"])
    if kind == "metadata":
        message = draw.choice(list(records.METADATA.kinds.values()))
        version = draw.choice(list(message.versions))
        fields = random_fields(draw, message.fields, version)
        return records.METADATA.decode, records.METADATA.encode(message.title, version, fields)
    if kind == "control":
        name, message = draw.choice(list(records.CONTROL.kinds.values()))
        key, value = records.CONTROL.encode(name, 0, random_fields(draw, message.fields, 0))
        return lambda data: records.CONTROL.decode(data[:4], data[4:]), key + value
    if kind == "member":
        fields = {"topics": ["orders"], "user_data": b"x", "generation_id": 4}
        encoded = records.CONSUMER_PROTOCOL.encode_subscription(draw.randrange(4), fields)
        return records.CONSUMER_PROTOCOL.decode_subscription, encoded
    keyed = draw.choice([records.OFFSETS, records.TRANSACTIONS])
    key, value = draw.choice(list(keyed.kinds.values()))
    name = value.title.removesuffix("Value")
    if kind == "key":
        return keyed.decode_key, keyed.encode_key(name, random_fields(draw, key.fields, 0))
    version = draw.choice(list(value.versions))
    fields = random_fields(draw, value.fields, version)
    encoded = keyed.encode_value(name, version, fields)
    return lambda data: keyed.decode_value(name, data), encoded


def test_internal_records():
    draw = random.Random(SEED)
    taken = refused = 0
    for _ in rounds(2000):
        decode, data = internal_records(draw)
        decode(data)
        try:
            decode(mutated(data, draw))
            taken += 1
        except REFUSALS:
            refused += 1
    assert taken > 10 and refused > 10
