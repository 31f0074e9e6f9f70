"""Decoders in Python under mutated bytes: codecs' framings and the small text files.

Each returns a value that passes its own checks, or raises one of the errors that it names; nothing
else, and never with more memory than the limit allows.
"""

import contextlib
import gzip
import random
import re
import tracemalloc
import uuid

import cramjam
import lz4.frame
import pytest
import zstandard

from kafkalog import errors
from kafkalog.batch import codecs
from kafkalog.disk import checkpoint, layout
from kafkalog.types import TopicPartition
from tests.damage.fuzz.mutate import mutated
from tests.support.effort import SEED, patience_s, rounds

TEXT = b"an old log of a very old ship, " * 90 + bytes(range(256))
LIMIT = 1 << 16
REFUSALS = (errors.CorruptMessage, errors.MessageTooLarge)

pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(patience_s(900))]


def bodies():
    """Framings as clients write them, by codec."""
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    linked = lz4.frame.compress(TEXT * 30, block_linked=True, content_checksum=True)
    sized = lz4.frame.compress(TEXT, block_checksum=True, store_size=True)
    frame = zstandard.ZstdCompressor().compress(TEXT)
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    streamed = unsized.compress(TEXT)
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    return {
        codecs.GZIP: [gzip.compress(TEXT), gzip.compress(b"") + gzip.compress(TEXT, mtime=0)],
        codecs.SNAPPY: [raw, codecs.compress(codecs.SNAPPY, TEXT * 20)],
        codecs.LZ4: [codecs.compress(codecs.LZ4, TEXT), linked, sized],
        codecs.ZSTD: [frame, streamed, skippable + frame, frame + streamed],
    }


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_framings(codec):
    draw = random.Random(SEED + codec)
    seeds = bodies()[codec]
    taken = refused = 0
    for _ in rounds(2000):
        body = mutated(draw.choice(seeds), draw)
        limit = draw.choice([LIMIT, LIMIT, 100, len(TEXT)])
        try:
            found = codecs.decompress(codec, body, limit)
        except REFUSALS:
            refused += 1
            continue
        taken += 1
        assert len(found) <= limit, f"{len(found)} bytes above {limit}: {body.hex()}"
        again = codecs.decompress(codec, codecs.compress(codec, found), limit)
        assert bytes(again) == bytes(found), body.hex()
    assert taken > 10 and refused > 10


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_no_memory_on_the_word_of_a_body(codec):
    """A small limit, bodies that claim a lot: Python's allocations stay near the limit."""
    draw = random.Random(SEED - codec)
    seeds = bodies()[codec]
    largest = 0
    codecs.decompress(codec, seeds[0])  # imports the library and creates its contexts
    tracemalloc.start()
    try:
        for _ in range(300):
            body = mutated(draw.choice(seeds), draw)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(REFUSALS):
                codecs.decompress(codec, body, 1000)
            largest = max(largest, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert largest < 4 << 20


TP = {TopicPartition("orders", 0): 5, TopicPartition("pay.ments_x", 12): (1 << 63) - 1}
IDENTITY = uuid.UUID(int=77 << 64 | 5)
TEXTS = {
    "offsets": (
        checkpoint.parse_offsets,
        checkpoint.render_offsets,
        [checkpoint.render_offsets(TP), checkpoint.render_offsets({})],
    ),
    "partition.metadata": (
        layout.parse_partition_metadata,
        layout.render_partition_metadata,
        [layout.render_partition_metadata(IDENTITY)],
    ),
    "meta.properties": (
        layout.parse_meta_properties,
        layout.render_meta_properties,
        [layout.render_meta_properties(layout.new_meta_properties(3))],
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts(kind):
    """A parsed text that is written again parses to the same value."""
    parse, render, seeds = TEXTS[kind]
    draw = random.Random(SEED)
    taken = refused = 0
    for _ in rounds(1000):
        data = mutated(draw.choice(seeds), draw)
        try:
            found = parse(data)
        except errors.CorruptLog:
            refused += 1
            continue
        taken += 1
        # Ids are letters, digits and two signs in all our texts: nothing is escaped.
        if re.fullmatch(r"[\w-]*", getattr(found, "cluster_id", "") or "", re.ASCII):
            assert parse(render(found)) == found, data
    assert taken > 10 and refused > 10


def test_names_of_folders():
    """Any name in a data directory is a partition's or not."""
    draw = random.Random(SEED)
    seeds = [b"orders-0", b"a.b-c-12", b"orders-0." + b"0" * 32 + b"-delete", b"x-2147483647"]
    taken = 0
    for _ in rounds(500):
        name = mutated(draw.choice(seeds), draw).decode("utf-8", "surrogateescape")
        folder = layout.parse_folder(name)
        layout.parse_marked(name)
        if folder is not None:
            taken += 1
            assert layout.partition_folder(folder.topic, folder.partition) == name
            assert layout.check_topic(folder.topic) == folder.topic
    assert taken > 10
