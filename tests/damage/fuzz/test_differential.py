"""Three decoders on the same mutated batches: the C core's, a plain one in Python by the
format's description, and kafka-python's.

The first two accept and refuse the same batches.  kafka-python decodes those that they accept;
`may_differ` lists its known differences.
"""

import random
import struct

import crc32c
import pytest

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from tests.damage.fuzz import reference, seeds
from tests.damage.fuzz.engine import TARGETS
from tests.damage.fuzz.mutate import mutated
from tests.support import batches
from tests.support.batches import Row
from tests.support.effort import SEED, rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def own_seeds():
    rows = [
        Row(b"value %d" % i, None if i % 3 else b"key", 1000 + i % 4, [("h", None), ("", b"x")])
        for i in range(9)
    ]
    for codec in batches.CODECS:
        yield batches.batch(rows, codec=codec, base_offset=77, leader_epoch=2)
        yield batches.batch([Row(None)], codec=codec)
    yield batches.batch(rows, producer_id=4, producer_epoch=1, base_sequence=9, transactional=True)


def mended(data: bytes, draw: random.Random) -> bytes:
    """A length and a checksum that are right, most of the time."""
    if len(data) < batches.HEADER_BYTES or draw.random() < 0.05:
        return data
    out = bytearray(data)
    if draw.random() < 0.95:
        struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def by_core(data: bytes) -> list[reference.Record]:
    """The records as the C core decodes them.  Raises: errors.KafkalogError."""
    batch = ffi.new("kl_batch *")
    check(lib.kl_batch_check(data, len(data), batch))
    body = bytes(codecs.decompress(batch.attributes & 7, data[61 : batch.batch_bytes]))
    check(lib.kl_records_check(batch, body, len(body), 0, ffi.NULL, ffi.NULL))
    room = batch.record_count + 1
    out, count, pos = ffi.new("kl_record[]", room), ffi.new("int32_t *"), ffi.new("int64_t *")
    check(lib.kl_records_decode(batch, body, len(body), pos, out, room, count))
    return [_described(record, body) for record in out[0 : count[0]]]


def _described(record, body: bytes) -> reference.Record:
    def part(at: int, length: int) -> bytes | None:
        return None if length < 0 else body[at : at + length]

    headers = reference.Reader(body, record.headers_pos, len(body))
    named = []
    for _ in range(record.header_count):
        named.append((headers.take(headers.small()), headers.nullable()))
    return reference.Record(
        record.offset,
        record.timestamp_ms,
        part(record.key_pos, record.key_bytes),
        part(record.value_pos, record.value_bytes),
        tuple(named),
    )


def by_reference(data: bytes) -> tuple[list[reference.Record], bool]:
    """Raises: reference.RefusedError, errors.KafkalogError of the codec."""
    fields = reference.header(data)
    size = fields[1] + 12
    if crc32c.crc32c(data[21:size]) != fields[4]:
        raise reference.RefusedError("the checksum")
    if fields[5] & 7 > 4:
        raise reference.RefusedError("the codec")
    body = bytes(codecs.decompress(fields[5] & 7, data[61:size]))
    return reference.records(data[:size], body)


def by_kafka_python(data: bytes):
    """Raises: any error of kafka-python's."""
    default_records = pytest.importorskip("kafka.record.default_records")
    size = struct.unpack_from(">i", data, 8)[0] + 12
    batch = default_records.DefaultRecordBatch(data[:size])
    if not batch.validate_crc():
        raise ValueError("the checksum")
    return [
        reference.Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
        )
        for record in batch
    ]


def may_differ(records: list[reference.Record], odd_attributes: bool, attributes: int) -> bool:
    """Where kafka-python is known to deviate from the format."""
    for record in records:
        if not -(1 << 62) < record.timestamp_ms < 1 << 62:
            return True  # it does not wrap timestamps at 64 bits
        for name, _ in record.headers:
            try:
                name.decode()
            except UnicodeDecodeError:
                return True  # it refuses such names; Kafka uses U+FFFD
    # It reads a record's attributes as a varint; they are one byte.  Its codecs accept less: one
    # member of gzip, one frame of zstd and lz4.  It also decodes the content of a marker.
    return odd_attributes or bool(attributes & 7) or bool(attributes & batches.CONTROL)


def all_seeds() -> list[bytes]:
    real = list(seeds.of(TARGETS["batch"]))[::23]
    return [*own_seeds(), *real]


def test_three_decoders_agree():
    draw = random.Random(SEED)
    inputs = all_seeds()
    taken = refused = compared = 0
    for _ in rounds(2000):
        data = mended(mutated(draw.choice(inputs), draw), draw)
        try:
            expected, odd = by_reference(data)
        except (reference.RefusedError, errors.KafkalogError) as reason:
            with pytest.raises(errors.KafkalogError):
                found = by_core(data)
                pytest.fail(f"took {found}, which is refused: {reason}\n{data.hex()}")
            refused += 1
            continue
        assert by_core(data) == expected, data.hex()
        taken += 1
        attributes = data[22]
        try:
            theirs = by_kafka_python(data)
        except pytest.skip.Exception:
            raise
        except Exception as problem:
            assert may_differ(expected, odd, attributes), f"{problem!r}: {data.hex()}"
            continue
        if theirs != expected:
            assert may_differ(expected, odd, attributes), data.hex()
        else:
            compared += 1
    assert taken > 20 and refused > 20 and compared > 10


def test_untouched_batches_are_the_same_to_all():
    """Also compressed ones, as clients write them."""
    for data in own_seeds():
        expected, _ = by_reference(data)
        assert by_core(data) == expected
        if data[22] & 7 != batches.CODECS["snappy"]:  # that needs one more package
            assert by_kafka_python(data) == expected


def test_a_decoder_that_is_wrong_is_noticed(monkeypatch):
    """The canary: a decoder that forgets the sign of a delta differs at once."""
    data = batches.batch([Row(b"a", timestamp_ms=9), Row(b"b", timestamp_ms=5)])
    expected, _ = by_reference(data)
    monkeypatch.setattr(reference, "_signed64", lambda value: value + 8)
    assert by_reference(data)[0] != expected
    assert by_core(data) == expected
