"""Invalid bytes from outside are refused with the codec's name, within the memory limit."""

import os
import struct
import subprocess
import sys
import textwrap
import threading
import tracemalloc

import cramjam
import hypothesis
import lz4.frame
import pytest
import zstandard
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog.batch import codecs
from tests.support.waiting import LIMIT_S

TEXT = b"".join(b"%06d some line of a log that repeats itself\n" % i for i in range(300))
REAL = range(1, 5)
FRAMED = (codecs.GZIP, codecs.LZ4, codecs.ZSTD)
NAMED = {codec: codecs.CODECS[codec] for codec in range(5)}


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODECS)
def test_the_limit_is_exact(codec):
    body = codecs.compress(codec, TEXT)
    assert len(codecs.decompress(codec, body, len(TEXT))) == len(TEXT)
    limit = len(TEXT) - 1
    with pytest.raises(errors.MessageTooLarge, match=f"{NAMED[codec]}: .* the limit of {limit}$"):
        codecs.decompress(codec, body, limit)


def test_the_limit_of_a_zstd_frame_without_size():
    body = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert len(codecs.decompress(codecs.ZSTD, body, len(TEXT))) == len(TEXT)
    with pytest.raises(errors.MessageTooLarge, match=r"zstd: .* the limit of 1000$"):
        codecs.decompress(codecs.ZSTD, body, 1000)


@pytest.mark.parametrize("codec", FRAMED, ids=NAMED.get)
def test_a_body_cut_off_anywhere(codec):
    body = codecs.compress(codec, TEXT)
    for end in range(len(body)):
        with pytest.raises(errors.CorruptMessage, match=NAMED[codec]):
            codecs.decompress(codec, body[:end])


def test_a_snappy_body_cut_off_anywhere():
    """Xerial has no end mark: a cut between blocks gives the blocks before it."""
    body = codecs.compress(codecs.SNAPPY, TEXT * 6)
    whole = []
    for end in range(len(body)):
        try:
            whole.append(bytes(codecs.decompress(codecs.SNAPPY, body[:end])))
        except errors.CorruptMessage as problem:
            assert "snappy" in str(problem)
    assert whole
    assert all((TEXT * 6).startswith(part) for part in whole)
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    for end in range(len(raw)):
        with pytest.raises(errors.CorruptMessage, match="snappy"):
            codecs.decompress(codecs.SNAPPY, raw[:end])


@pytest.mark.parametrize("codec", FRAMED, ids=NAMED.get)
def test_bytes_behind_the_end(codec):
    with pytest.raises(errors.CorruptMessage, match=NAMED[codec]):
        codecs.decompress(codec, codecs.compress(codec, TEXT) + b"garbage")


def harmless(codec, body, limit=1 << 20):
    """True if the result is a body within the limit or one of the two refusals."""
    try:
        return len(codecs.decompress(codec, body, limit)) <= limit
    except (errors.CorruptMessage, errors.MessageTooLarge) as problem:
        return str(problem).startswith(NAMED[codec] + ": ")


@pytest.mark.parametrize("codec", REAL, ids=NAMED.get)
@hypothesis.given(data=st.binary(max_size=200))
def test_garbage(codec, data):
    assert harmless(codec, data)


@pytest.mark.parametrize("codec", REAL, ids=NAMED.get)
def test_every_bit_flipped(codec):
    body = bytearray(codecs.compress(codec, TEXT[:1500]))
    for bit in range(8 * len(body)):
        body[bit // 8] ^= 1 << bit % 8
        assert harmless(codec, body, 4000)
        body[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("codec", REAL, ids=NAMED.get)
@hypothesis.given(data=st.data())
def test_pieces_of_a_body_in_any_order(codec, data):
    body = codecs.compress(codec, TEXT)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert harmless(codec, b"".join(data.draw(st.permutations(pieces))))


@pytest.mark.parametrize(
    ("codec", "body", "words"),
    [
        (codecs.GZIP, b"", "no bytes"),
        (codecs.SNAPPY, b"", "no length in front"),
        (codecs.SNAPPY, b"\xff\xff\xff\xff\x0f", "claims to hold 4294967295"),
        (codecs.SNAPPY, b"\xff" * 9, "no length in front"),
        (codecs.SNAPPY, codecs.XERIAL_HEADER + b"\x7f\xff\xff\xff", "a block of 2147483647 bytes"),
        (codecs.SNAPPY, codecs.XERIAL_HEADER + b"\xff\xff\xff\xff", "a block of -1 bytes"),
        (codecs.SNAPPY, codecs.XERIAL_HEADER[:12], "in a header"),
        (codecs.LZ4, b"", "cut off at byte 0"),
        (codecs.LZ4, b"\x04\x22\x4d\x19" + bytes(20), "wanted 04224d18"),
        (codecs.LZ4, b"\x04\x22\x4d\x18\x20\x40\x82" + bytes(4), "not of version 1"),
        (codecs.LZ4, b"\x04\x22\x4d\x18\x60\x00\x82" + bytes(4), "not of version 1"),
        (codecs.LZ4, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f", "in a block of 2147483647"),
        (codecs.ZSTD, b"", "cut off at byte 0"),
        (codecs.ZSTD, b"\x28\xb5\x2f\xfe" + bytes(9), "wanted fd2fb528"),
        # A single segment that claims 2**62 bytes, with one empty raw block.
        (
            codecs.ZSTD,
            b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + b"\1\0\0",
            "its blocks",
        ),
        (codecs.ZSTD, struct.pack("<II", 0x184D2A50, 2**32 - 1), "in a frame up to"),
    ],
)
def test_lengths_that_cannot_be(codec, body, words):
    with pytest.raises(errors.CorruptMessage, match=words):
        codecs.decompress(codec, body)


def test_a_zstd_window_larger_than_level_22_needs():
    # Descriptor 0: window, no size.  Window of 2**(10 + 21) bytes.  One RLE block, the last.
    body = (
        b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([21 << 3]) + struct.pack("<I", 1 << 3 | 3)[:3] + b"a"
    )
    with pytest.raises(errors.CorruptMessage, match=r"zstd: .*memory"):
        codecs.decompress(codecs.ZSTD, body)


def rle_bomb(blocks):
    """A zstd frame of `blocks` runs of 128 KiB, each stored in four bytes."""
    run = struct.pack("<I", (128 << 10) << 3 | 2)[:3] + b"\0"
    last = struct.pack("<I", (128 << 10) << 3 | 3)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([7 << 3]) + run * (blocks - 1) + last


def test_the_zstd_bomb_is_a_frame():
    assert bytes(codecs.decompress(codecs.ZSTD, rle_bomb(3))) == bytes(3 * 128 << 10)


def gzip_member(data):
    return codecs.compress(codecs.GZIP, data)


SNAPPY_BLOCK = struct.pack(">i", 1) + b"\0"
"""Holds nothing."""
EMPTY_FRAME = zstandard.ZstdCompressor(write_content_size=False).compress(b"")
RAW_BLOCK = struct.pack("<I", 1 << 3)[:3] + b"a"
SKIPPED = struct.pack("<II", codecs.ZSTD_SKIPPABLE_MAGIC, 0)


def lz4_of_bytes(count):
    """A frame of `count` stored blocks of one byte."""
    block = struct.pack("<I", 1 << 31 | 1) + b"a"
    head = lz4.frame.compress(b"", store_size=False)[:7]
    return head + block * count + bytes(4)


def zstd_of_bytes(count):
    """A frame of `count` stored blocks of one byte."""
    last = struct.pack("<I", 1)[:3]
    return EMPTY_FRAME[:6] + RAW_BLOCK * count + last


IN_PIECES = {
    "gzip-empty": (codecs.GZIP, lambda count: gzip_member(b"") * count, 0),
    "gzip": (codecs.GZIP, lambda count: gzip_member(b"a") * count, 1),
    "snappy-empty": (codecs.SNAPPY, lambda count: codecs.XERIAL_HEADER + SNAPPY_BLOCK * count, 0),
    "snappy-headers": (codecs.SNAPPY, lambda count: codecs.XERIAL_HEADER * count, 0),
    "lz4": (codecs.LZ4, lz4_of_bytes, 1),
    "zstd-blocks": (codecs.ZSTD, zstd_of_bytes, 1),
    "zstd-empty": (codecs.ZSTD, lambda count: EMPTY_FRAME * count, 0),
    "zstd-frames": (codecs.ZSTD, lambda count: zstd_of_bytes(1) * count, 1),
    "zstd-skipped": (codecs.ZSTD, lambda count: SKIPPED * count, 0),
}


@pytest.mark.parametrize(("codec", "body", "each"), IN_PIECES.values(), ids=IN_PIECES)
def test_bodies_in_many_pieces(codec, body, each, monkeypatch):
    """Their memory is that of their bytes; neither it nor the time is that of their number."""
    legal = body(PIECES)
    codecs.decompress(codec, body(2))  # loads the library
    tracemalloc.start()
    try:
        found = codecs.decompress(codec, legal)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes(found) == b"a" * (PIECES * each)
    assert peak < 2 * len(legal) + (256 << 10)
    monkeypatch.setattr(codecs, "PIECES_FREE", 500)
    with pytest.raises(errors.CorruptMessage, match=f"{NAMED[codec]}: .* pieces, wanted at most"):
        codecs.decompress(codec, legal)


PIECES = 3_000


def bombs():
    """Small bodies that hold, or claim to hold, several GiB."""
    zeros = bytes(64 << 20)
    member = codecs.compress(codecs.GZIP, zeros, 9)
    frame = lz4.frame.compress(zeros, block_size=7, store_size=False)
    block, end = frame[7:-4], frame[-4:]
    raw = bytes(cramjam.snappy.compress_raw(zeros))
    yield codecs.GZIP, member * 40
    yield codecs.SNAPPY, raw
    yield codecs.SNAPPY, codecs.XERIAL_HEADER + (struct.pack(">i", len(raw)) + raw) * 8
    yield codecs.LZ4, frame[:7] + block * 40 + end
    yield codecs.ZSTD, rle_bomb(20_000)
    yield codecs.ZSTD, zstandard.ZstdCompressor(write_content_size=True).compress(zeros) * 40


def test_bombs_stop_at_the_limit_without_the_memory(tmp_path):
    """In a process limited to 48 MiB more than it uses when it starts to decompress."""
    made = list(bombs())
    for index, (codec, body) in enumerate(made):
        (tmp_path / f"{index}.{codec}").write_bytes(body)
    program = """
        import pathlib, resource, sys
        from kafkalog import errors
        from kafkalog.batch import codecs
        for codec in range(5):
            codecs.decompress(codec, codecs.compress(codec, b"warm"))
        bodies = [(int(p.suffix[1:]), p.read_bytes()) for p in pathlib.Path(sys.argv[1]).iterdir()]
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + (48 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        for codec, body in bodies:
            try:
                codecs.decompress(codec, body, 8 << 20)
            except errors.MessageTooLarge as problem:
                assert "the limit of 8388608" in str(problem)
                print("refused")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stderr == ""
    assert run.stdout.split() == ["refused"] * len(made)


# ---- several at once ---------------------------------------------------------------------------


def many(count=12):
    texts = [TEXT * (index + 1) + os.urandom(40_000) for index in range(count)]
    return texts, [(1 + i % 4, codecs.compress(1 + i % 4, text)) for i, text in enumerate(texts)]


@pytest.fixture
def four_threads(monkeypatch):
    """Decompress as on a machine with four processors."""
    monkeypatch.setattr(codecs, "_threads", lambda: 4)
    monkeypatch.setattr(codecs, "_pool", None)
    yield
    if codecs._pool is not None:
        codecs._pool.shutdown()


def test_many_come_back_in_order(four_threads):
    texts, items = many()
    assert [bytes(body) for body in codecs.decompress_many(items)] == texts
    assert codecs.decompress_many([]) == []
    assert [bytes(b) for b in codecs.decompress_many([(0, b"plain"), *items[:1]])] == [
        b"plain",
        texts[0],
    ]


def test_many_use_several_threads(four_threads, monkeypatch):
    seen = set()
    plain = codecs.decompress

    def noting(codec, data, limit):
        seen.add(threading.current_thread().name)
        return plain(codec, data, limit)

    monkeypatch.setattr(codecs, "decompress", noting)
    texts, items = many()
    assert [bytes(body) for body in codecs.decompress_many(items)] == texts
    assert threading.current_thread().name in seen
    assert any(name.startswith("kafkalog-codec") for name in seen)


def test_few_bytes_stay_in_one_thread(four_threads):
    items = [(codecs.ZSTD, codecs.compress(codecs.ZSTD, TEXT))] * 3
    assert [bytes(body) for body in codecs.decompress_many(items)] == [TEXT] * 3
    assert codecs._pool is None


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_many_with_one_that_fails(four_threads, bad):
    _, items = many()
    items[bad] = (codecs.ZSTD, b"not a frame" * 10_000)
    with pytest.raises(errors.CorruptMessage, match="zstd"):
        codecs.decompress_many(items)


def test_no_thread_looks_at_the_data_after_an_interrupt(four_threads, monkeypatch):
    """Ctrl-C during the caller's own share: the call returns only when all threads have ended."""
    running = threading.Event()
    finish = threading.Event()
    ended = []
    caller = threading.current_thread()
    plain = codecs.decompress

    def slow(codec, data, limit):
        if threading.current_thread() is caller:
            assert running.wait(LIMIT_S)
            threading.Timer(0.05, finish.set).start()
            raise KeyboardInterrupt
        running.set()
        assert finish.wait(LIMIT_S)
        body = plain(codec, data, limit)
        ended.append(threading.current_thread())
        return body

    monkeypatch.setattr(codecs, "decompress", slow)
    _, items = many()
    with pytest.raises(KeyboardInterrupt):
        codecs.decompress_many(items)
    assert finish.is_set()
    count = len(ended)
    assert count >= 1
    codecs._pool.shutdown(wait=True)
    assert len(ended) == count  # no thread continued afterwards


def test_a_forked_child_has_its_own_threads(four_threads):
    texts, items = many()
    codecs.decompress_many(items)  # creates the pool
    child = os.fork()
    if child == 0:
        same = [bytes(body) for body in codecs.decompress_many(items)] == texts
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
