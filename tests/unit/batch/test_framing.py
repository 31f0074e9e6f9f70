"""Codecs write what Kafka's Java client writes, and read what any client writes."""

import gzip
import itertools
import struct
import zlib

import cramjam
import hypothesis
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog.batch import codecs

TEXT = b"".join(b"%06d some line of a log that repeats itself\n" % i for i in range(4000))
XERIAL_HEADER = bytes.fromhex("82534e41505059000000000100000001")


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODECS)
@hypothesis.given(
    data=st.one_of(st.binary(), st.builds(bytes.__mul__, st.binary(), st.integers(0, 3000)))
)
def test_compression_round_trip(codec, data):
    assert bytes(codecs.decompress(codec, codecs.compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec, kind):
    body = codecs.compress(codec, kind(TEXT))
    assert bytes(codecs.decompress(codec, kind(body), len(TEXT))) == TEXT


def test_names_and_numbers():
    assert [codecs.codec_name(i) for i in range(5)] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codecs.codec_id(codecs.codec_name(i)) for i in range(5)] == list(range(5))
    assert codecs.codec_id("uncompressed") == 0
    with pytest.raises(
        errors.UnsupportedCompressionType, match="'brotli': wanted one of none, gzip"
    ):
        codecs.codec_id("brotli")


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_a_codec_that_is_none(codec):
    for call in (
        codecs.codec_name,
        lambda c: codecs.compress(c, b""),
        lambda c: codecs.decompress(c, b""),
    ):
        with pytest.raises(
            errors.UnsupportedCompressionType, match=f"codec {codec}: wanted 0 to 4"
        ):
            call(codec)


# ---- what is written -----------------------------------------------------------------------


def test_gzip_is_one_plain_member():
    body = codecs.compress(codecs.GZIP, TEXT)
    assert body[:4] == b"\x1f\x8b\x08\x00"  # deflate, no name, no extra field
    assert gzip.decompress(body) == TEXT


def test_snappy_is_xerial_with_blocks_of_32_kib():
    body = codecs.compress(codecs.SNAPPY, TEXT)
    assert body.startswith(XERIAL_HEADER)
    pos, sizes, out = len(XERIAL_HEADER), [], b""
    while pos < len(body):
        (size,) = struct.unpack_from(">i", body, pos)
        block = bytes(cramjam.snappy.decompress_raw(body[pos + 4 : pos + 4 + size]))
        pos, out = pos + 4 + size, out + block
        sizes.append(len(block))
    assert out == TEXT
    assert set(sizes[:-1]) == {32 << 10} and 0 < sizes[-1] <= 32 << 10


def test_lz4_is_a_frame_of_independent_64_kib_blocks():
    body = codecs.compress(codecs.LZ4, TEXT)
    assert body[:7] == bytes.fromhex("04224d18604082")
    assert body[-4:] == bytes(4)  # the end mark, and no checksum after it
    pos, sizes, out = 7, [], b""
    while size := struct.unpack_from("<I", body, pos)[0]:
        assert not size >> 31  # this text always gets smaller
        block = lz4.block.decompress(body[pos + 4 : pos + 4 + size], uncompressed_size=64 << 10)
        pos, out = pos + 4 + size, out + block
        sizes.append(len(block))
    assert (out, pos + 4) == (TEXT, len(body))
    assert set(sizes[:-1]) == {64 << 10}


def test_zstd_is_one_frame_that_says_its_size():
    body = codecs.compress(codecs.ZSTD, TEXT)
    header = zstandard.get_frame_parameters(body)
    assert (header.content_size, header.has_checksum) == (len(TEXT), False)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(codecs.GZIP, (-1, 1, 9)), (codecs.LZ4, (1, 3, 9, 17)), (codecs.ZSTD, (-7, 1, 22))],
)
def test_levels(codec, levels):
    sizes = [len(codecs.compress(codec, TEXT, level)) for level in levels]
    for level in levels:
        assert bytes(codecs.decompress(codec, codecs.compress(codec, TEXT, level))) == TEXT
    assert min(sizes) < max(sizes)


def test_lz4_level_9_is_the_default_one_and_fast_as_javas():
    assert codecs.compress(codecs.LZ4, TEXT, 9) == codecs.compress(codecs.LZ4, TEXT)
    assert codecs.compress(codecs.LZ4, TEXT, 10) != codecs.compress(codecs.LZ4, TEXT)


@pytest.mark.parametrize(
    ("codec", "level"),
    [(codecs.GZIP, 10), (codecs.LZ4, 0), (codecs.LZ4, 18), (codecs.ZSTD, 23), (codecs.SNAPPY, 1)],
)
def test_a_level_that_the_codec_lacks(codec, level):
    with pytest.raises(errors.ArgumentError, match=f"{codecs.CODECS[codec]} level {level}: "):
        codecs.compress(codec, TEXT, level)


# ---- what is read ----------------------------------------------------------------------------


def xerial(*blocks):
    raw = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(r)) + r for r in raw)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(bytes(cramjam.snappy.compress_raw(TEXT)), TEXT, id="raw"),
        pytest.param(bytes(cramjam.snappy.compress_raw(b"")), b"", id="raw-empty"),
        pytest.param(XERIAL_HEADER, b"", id="xerial-empty"),
        pytest.param(xerial(TEXT), TEXT, id="one-large-block"),
        pytest.param(xerial(TEXT[:9], b"", TEXT[9:]), TEXT, id="an-empty-block"),
        pytest.param(xerial(TEXT, b"a") + xerial(TEXT), TEXT + b"a" + TEXT, id="two-chunks"),
    ],
)
def test_snappy_that_others_write(body, text):
    assert bytes(codecs.decompress(codecs.SNAPPY, body, len(text))) == text


def test_gzip_of_several_members():
    members = [gzip.compress(part) for part in (TEXT, b"", b"end")]
    assert bytes(codecs.decompress(codecs.GZIP, b"".join(members))) == TEXT + b"end"


@pytest.mark.parametrize(
    "how",
    [
        {"block_size": size, "block_linked": linked, "store_size": stored}
        | {"block_checksum": of_block, "content_checksum": of_content}
        for size, linked, stored, of_block, of_content in itertools.product(
            (4, 5, 6, 7), *[(False, True)] * 4
        )
    ],
    ids=str,
)
def test_lz4_frames_that_others_write(how):
    for text in (TEXT, b"", bytes(range(256)) * 2):  # the last is stored, not compressed
        assert (
            bytes(codecs.decompress(codecs.LZ4, lz4.frame.compress(text, **how), len(text))) == text
        )


@pytest.mark.parametrize("with_size", [False, True])
@pytest.mark.parametrize("with_checksum", [False, True])
def test_zstd_frames_that_others_write(with_size, with_checksum):
    one = zstandard.ZstdCompressor(
        write_content_size=with_size, write_checksum=with_checksum
    ).compress
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"notes"
    for text in (TEXT, b"", b"x" * 500_000):
        assert bytes(codecs.decompress(codecs.ZSTD, one(text), len(text))) == text
        body = skippable + one(text) + skippable + one(TEXT)
        assert bytes(codecs.decompress(codecs.ZSTD, body)) == text + TEXT


def test_zstd_that_was_flushed_now_and_then():
    stream = zstandard.ZstdCompressor(level=19).compressobj()
    body = b"".join(
        stream.compress(TEXT[i : i + 100]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for i in range(0, len(TEXT), 100)
    )
    body += stream.flush()
    assert bytes(codecs.decompress(codecs.ZSTD, body)) == TEXT


def test_real_batches(kafka_cases):
    """Java's and librdkafka's batches: each body holds the record count that its header states."""
    seen = set()
    for path in sorted(kafka_cases.glob("codecs/log/*/*.log")):
        data, pos = path.read_bytes(), 0
        while pos < len(data):
            size = 12 + struct.unpack_from(">i", data, pos + 8)[0]
            codec = struct.unpack_from(">h", data, pos + 21)[0] & 7
            (count,) = struct.unpack_from(">i", data, pos + 57)
            body = bytes(codecs.decompress(codec, data[pos + 61 : pos + size]))
            assert _records(body) == count, (path, pos)
            seen.add((codec, path.parent.name.rpartition("-")[0]))
            pos += size
    assert {codec for codec, _ in seen} == set(range(5))
    assert len(seen) >= 10


def _records(body):
    """The number of records in a body, found from their lengths alone."""
    count = pos = 0
    while pos < len(body):
        length = shift = 0
        while True:
            byte = body[pos]
            length |= (byte & 127) << shift
            pos, shift = pos + 1, shift + 7
            if byte < 128:
                break
        pos += length >> 1
        count += 1
    assert pos == len(body)
    return count


def test_a_gzip_checksum_that_is_wrong():
    body = bytearray(codecs.compress(codecs.GZIP, TEXT))
    body[-8] ^= 1
    with pytest.raises(errors.CorruptMessage, match=r"gzip: .*incorrect data check"):
        codecs.decompress(codecs.GZIP, body)
    assert zlib.decompress(bytes(body[10:-8]), -15) == TEXT  # only the checksum is wrong
