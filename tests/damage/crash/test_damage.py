"""Every damaged file of one log gets its answer: truncated, rebuilt, refused or named, but never
believed.

A "killed" log is a copy of the folder taken while its writer had it open: what a process that dies
at that moment leaves.
"""

import contextlib
import os
import random
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import kafkalog
from kafkalog.log.log import handle_of
from tests.damage.crash.ledger import key_of, number_of, value_of
from tests.support import batches, trees

pytestmark = pytest.mark.slow

CONFIG = {"segment.bytes": 2500, "index.interval.bytes": 300, "file.delete.delay.ms": 0}
RECORDS = 60
INDEXES = (".index", ".timeindex")


def fill(log, count=RECORDS):
    """One batch per record: record i is value_of(i), at offset i."""
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value_of(number), key=key_of(number), timestamp_ms=1000 + number)


def numbers_of(log, start=None):
    return [number_of(r.key, r.value) for r in log.read(start)]


def damage(log):
    """Findings that verify calls damage: (file name, what, found, wanted)."""
    return [
        (os.path.basename(f.file), f.what, f.found, f.wanted)
        for f in log.verify().findings
        if f.severity not in ("note", "warning")
    ]


@pytest.fixture(scope="module")
def killed(memory):
    """A log whose writer was killed."""
    root = Path(tempfile.mkdtemp(dir=memory))
    with kafkalog.Log(root / "live-0", config=CONFIG) as log:
        fill(log)
        assert len(log.segments) > 3
        copy = trees.copy_tree(root / "live-0", root / "killed-0")
    (copy / "flushed-offset").unlink(missing_ok=True)  # written by a roll's own sync, or not yet
    return copy


@pytest.fixture(scope="module")
def closed(killed, memory):
    """The same log, closed cleanly."""
    path = trees.copy_tree(killed, Path(tempfile.mkdtemp(dir=memory)) / "log-0")
    with kafkalog.Log(path, config=CONFIG) as log:
        assert numbers_of(log) == list(range(RECORDS))
    return path


@pytest.fixture
def path(memory_path):
    return memory_path / "log-0"


def last_segment(path):
    return max(path.glob("*.log"))


def expect(path, count, clean=True, **recovered):
    """The log holds the first `count` records, continues there, and is clean."""
    before = trees.fingerprint(path)
    with kafkalog.Log(path, mode="r", config=CONFIG) as log:
        assert numbers_of(log) == list(range(count))
        assert log.end_offset == count
    assert trees.fingerprint(path) == before, "a reader wrote"
    with kafkalog.Log(path, config=CONFIG) as log:
        assert numbers_of(log) == list(range(count))
        for name, value in recovered.items():
            assert getattr(log.recovery, name) == value, log.recovery
        assert damage(log) == [] or not clean
        fill(log, 3)
    with kafkalog.Log(path, config=CONFIG) as log:
        assert numbers_of(log) == list(range(count + 3))
        assert log.recovery.truncated_bytes == 0


# ---- the tail --------------------------------------------------------------------------


def test_a_torn_tail_at_every_byte_of_the_last_batch(killed, path):
    """C-torn: the log ends before the torn batch; its bytes are counted."""
    data = last_segment(killed).read_bytes()
    last = list(batches.headers(data))[-1]
    for cut in range(1, last.batch_bytes + 1):
        copy = trees.copy_tree(killed, path.with_name(f"cut{cut}-0"))
        os.truncate(last_segment(copy), len(data) - cut)
        with kafkalog.Log(copy, config=CONFIG) as log:
            assert log.end_offset == RECORDS - 1
            assert log.recovery.truncated_bytes == last.batch_bytes - cut
            assert log[RECORDS - 2].value == value_of(RECORDS - 2)
            assert log.append(b"next") == RECORDS - 1
    expect(trees.copy_tree(killed, path), RECORDS, truncated_bytes=0)


@pytest.mark.parametrize("zeros", [1, 12, 60, 61, 4096, 70_000])
def test_zeros_after_the_end_are_not_batches(zeros, killed, path):
    """C-zero: the file grew, its data was never written."""
    trees.copy_tree(killed, path)
    with last_segment(path).open("ab") as file:
        file.write(bytes(zeros))
    expect(path, RECORDS)


def test_a_zeroed_block_in_the_tail_ends_the_log_before_it(killed, path):
    trees.copy_tree(killed, path)
    segment = last_segment(path)
    headers = list(batches.headers(segment.read_bytes()))
    target = headers[len(headers) // 2]
    with segment.open("r+b") as file:
        file.seek(target.pos + 70)
        file.write(bytes(target.batch_bytes - 70))
    expect(path, target.base_offset)


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 1, 48, 49])
def test_an_absurd_length_in_the_tail_is_not_believed(length, killed, path):
    trees.copy_tree(killed, path)
    fake = (RECORDS).to_bytes(8, "big") + (length & 0xFFFFFFFF).to_bytes(4, "big") + b"\xff" * 80
    with last_segment(path).open("ab") as file:
        file.write(fake)
    expect(path, RECORDS, truncated_bytes=len(fake))


def test_a_bad_batch_in_an_earlier_unflushed_segment_ends_the_log(killed, path):
    """All later bytes are dropped: offsets above a hole were never promised before a flush."""
    trees.copy_tree(killed, path)
    segment = sorted(path.glob("*.log"))[-2]
    header = list(batches.headers(segment.read_bytes()))[-1]
    flip(segment, header.pos + 65)
    expect(path, header.base_offset, segments_dropped=1)


# ---- indexes ---------------------------------------------------------------------------


def flip(path, pos, bit=0):
    data = bytearray(path.read_bytes())
    data[pos] ^= 1 << bit
    path.write_bytes(data)


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1]),
    "zero tail": lambda path: path.write_bytes(path.read_bytes() + bytes(240)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "ones": lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    "backwards": lambda path: path.write_bytes(path.read_bytes()[::-1]),
    "doubled": lambda path: path.write_bytes(path.read_bytes() * 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("state", ["killed", "closed"])
def test_a_damaged_index_never_gives_a_wrong_answer(damage, suffix, state, path, request):
    """I-miss, I-corrupt, I-pad: each lookup by offset or time is right; then the index is new."""
    source = request.getfixturevalue(state)
    trees.copy_tree(source, path)
    originals = {p.name: p.read_bytes() for p in request.getfixturevalue("closed").glob("*index")}
    for index in path.glob(f"*{suffix}"):
        DAMAGES[damage](index)
    for mode in ("r", "w"):
        with kafkalog.Log(path, mode=mode, config=CONFIG) as log:
            for offset in range(RECORDS):
                assert next(log.read(offset)).value == value_of(offset)
                assert log.offset_at(1000 + offset) == offset
            assert log.offset_at(1000 + RECORDS) is None
    expect(path, RECORDS, indexes_rebuilt=0)
    if state == "killed" or damage == "missing":
        sealed = sorted(path.glob(f"*{suffix}"))[:-1]
        assert {p.name: p.read_bytes() for p in sealed} == {
            p.name: originals[p.name] for p in sealed
        }


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_an_index_without_a_log_goes(state, path, request):
    trees.copy_tree(request.getfixturevalue(state), path)
    orphans = [path / f"{7:020d}{suffix}" for suffix in (*INDEXES, ".txnindex")]
    for orphan in orphans:
        orphan.write_bytes(bytes(34 * 12))
    expect(path, RECORDS)
    assert not any(orphan.exists() for orphan in orphans)


# ---- small files -----------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\0" * 30, b"0\n5\n0 0\n", b"nonsense\n"])
@pytest.mark.parametrize("state", ["killed", "closed"])
def test_a_damaged_epoch_file_is_rebuilt(content, state, path, request):
    """C-ckpt: a rename that was not synced leaves an empty file, which must not prevent an open."""
    trees.copy_tree(request.getfixturevalue(state), path)
    (path / "leader-epoch-checkpoint").write_bytes(content)
    with kafkalog.Log(path, config=CONFIG) as log:
        assert [tuple(entry) for entry in log.epochs] == [(0, 0)]
    expect(path, RECORDS)


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"\0\1" + b"\xff" * 60])
def test_a_damaged_snapshot_is_replaced_by_a_replay(content, memory_path, path):
    """The producers are the same as in a log with every snapshot."""
    with kafkalog.Log(path, config=CONFIG) as log:
        for sequence in range(40):
            row = batches.Row(value_of(sequence), key_of(sequence))
            log.append_batches(
                batches.batch([row], producer_id=5, producer_epoch=1, base_sequence=sequence)
            )
        known = log.producers
    assert list(path.glob("*.snapshot"))
    for snapshot in path.glob("*.snapshot"):
        snapshot.write_bytes(content)
    with kafkalog.Log(path, config=CONFIG) as log:
        assert log.producers == known
        assert numbers_of(log) == list(range(40))
        assert damage(log) == []


def test_own_small_files_may_be_empty(closed, path):
    """Any other small file in the folder: emptied, it prevents nothing."""
    trees.copy_tree(closed, path)
    small = [
        p for p in path.iterdir()
        if p.suffix not in (".log", *INDEXES) and p.name != "partition.metadata"
    ]  # fmt: skip
    assert small
    for file in small:
        file.write_bytes(b"")
    expect(path, RECORDS, clean=False)  # an old snapshot is read when it is needed


# ---- leftovers -------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", ["whole", "empty"])
def test_a_restarted_log_has_no_producers(snapshot, memory_path, path):
    """A crash in the middle of a restart at a new offset: all segments have their new names, the
    snapshots of their producers are still there, perhaps never written."""
    with kafkalog.Log(path, config=CONFIG) as log:
        for sequence in range(40):
            row = batches.Row(value_of(sequence), key_of(sequence))
            log.append_batches(
                batches.batch([row], producer_id=5, producer_epoch=1, base_sequence=sequence)
            )
        handle_of(log).owner.state.save(log_starts={handle_of(log).tp: 20})
        left = trees.copy_tree(path, memory_path / "left-0")
    (left / "flushed-offset").unlink(missing_ok=True)  # it is removed before the segments
    for segment in left.glob("*.log"):
        segment.rename(f"{segment}.deleted")
    (left / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 30\n")
    snapshots = list(left.glob("*.snapshot"))
    assert len(snapshots) > 3
    if snapshot == "empty":
        for one in snapshots:
            one.write_bytes(b"")
    with kafkalog.Log(left, config=CONFIG) as log:
        assert (log.start_offset, log.end_offset, log.producers) == (20, 20, ())
        assert log.verify().findings == []
        assert not list(left.glob("*.snapshot"))
        fill(log, 40)
        assert {entry.epoch for entry in log.epochs} == {7}
        killed = trees.copy_tree(left, memory_path / "killed-0")
    with kafkalog.Log(killed, config=CONFIG) as log:
        assert numbers_of(log) == list(range(20, 60))
        assert log.producers == ()
        assert damage(log) == []


def test_deleted_and_cleaned_files_go(closed, path):
    trees.copy_tree(closed, path)
    for source in closed.glob(f"{0:020d}.*"):
        (path / f"{source.name}.deleted").write_bytes(b"old")
        (path / f"{source.name}.cleaned").write_bytes(b"half")
    expect(path, RECORDS)
    assert not [p.name for p in path.iterdir() if p.suffix in (".deleted", ".cleaned")]


def swap_files(path, upto):
    """Write the finished output of a cleaner for the segments below base `upto`: every second
    record stays.  Returns the numbers of these records."""
    kept, data = [], b""
    for segment in sorted(path.glob("*.log")):
        if int(segment.stem) < upto:
            raw = segment.read_bytes()
            for header in batches.headers(raw):
                if header.base_offset % 2 == 0:
                    kept.append(header.base_offset)
                    data += raw[header.pos : header.pos + header.batch_bytes]
    with kafkalog.Log(
        path.parent / "cleaner-0", config={**CONFIG, "segment.bytes": 1 << 20}
    ) as log:
        log.append_as_follower(data)
    for suffix in (".log", *INDEXES):
        source = path.parent / "cleaner-0" / f"{0:020d}{suffix}"
        source.rename(path / f"{0:020d}{suffix}.swap")
    return kept


def test_a_finished_swap_is_completed(closed, path):
    """C-swap: exactly the new content, and none of the old segments that it replaces."""
    trees.copy_tree(closed, path)
    bases = sorted(int(p.stem) for p in path.glob("*.log"))
    kept = swap_files(path, bases[2])
    with kafkalog.Log(path, config=CONFIG) as log:
        assert numbers_of(log) == kept + list(range(bases[2], RECORDS))
        assert damage(log) == []
    assert not list(path.glob("*.swap"))
    assert sorted(int(p.stem) for p in path.glob("*.log")) == [0, *bases[2:]]


def test_an_unfinished_swap_is_dropped(closed, path):
    """A .cleaned with a lower base shows that the swap was incomplete: exactly the old records."""
    trees.copy_tree(closed, path)
    swap_files(path, sorted(int(p.stem) for p in path.glob("*.log"))[2])
    (path / f"{0:020d}.log.cleaned").write_bytes(b"unfinished")
    expect(path, RECORDS)
    assert not [p.name for p in path.iterdir() if p.suffix in (".swap", ".cleaned")]


# ---- bit rot ---------------------------------------------------------------------------


def test_a_flipped_bit_in_a_sealed_segment_is_found_and_cuts_nothing(closed, path, rng):
    """B-flip: that batch is refused by name, all others are served, no byte is removed."""
    trees.copy_tree(closed, path)
    segment = sorted(path.glob("*.log"))[1]
    whole = segment.read_bytes()
    for header in rng.sample(list(batches.headers(whole)), 4):
        covered = range(header.pos + 17, header.pos + header.batch_bytes)
        for pos in (covered[0], covered[4], covered[-1], rng.choice(covered)):
            flip(segment, pos, rng.randrange(8))
            with kafkalog.Log(path, config=CONFIG) as log:
                for offset in range(RECORDS):
                    if offset == header.base_offset:
                        where = f"offset {offset}|byte {header.pos}"
                        with pytest.raises(kafkalog.errors.CorruptMessage, match=where):
                            next(log.read(offset))
                    elif pos - header.pos >= batches.HEADER_BYTES:
                        assert next(log.read(offset)).value == value_of(offset)
                    else:  # after a wrong header nothing else in the segment is believed
                        with contextlib.suppress(kafkalog.errors.CorruptMessage):
                            assert next(log.read(offset)).value == value_of(offset)
                report = log.verify()
                assert not report.clean
                assert {header.base_offset, header.pos} & {
                    place for f in report.findings for place in (f.offset, f.position)
                }, report
            assert segment.stat().st_size == len(whole)
            segment.write_bytes(whole)
    expect(path, RECORDS)


def test_no_flipped_bit_of_any_file_gives_wrong_bytes(closed, path):
    """In whatever file: a record comes back as it was written, or an error says why.

    The 17 bytes before a batch's CRC are not covered by it: if those are hit, offsets may be
    wrong, but never the bytes.
    """
    rng = random.Random(closed.stat().st_size)
    trees.copy_tree(closed, path)
    files = [p for p in sorted(path.iterdir()) if p.stat().st_size]
    for _ in range(150):
        file = rng.choice(files)
        data = file.read_bytes()
        flip(file, rng.randrange(len(data)), rng.randrange(8))
        try:
            with kafkalog.Log(path, mode="r", config=CONFIG) as log:
                for offset in rng.sample(range(RECORDS), 6):
                    for record in log.read(offset, offset + 1):
                        number_of(record.key, record.value)
        except kafkalog.KafkalogError as failure:
            assert str(failure)
        file.write_bytes(data)
    with kafkalog.Log(path, mode="r", config=CONFIG) as log:
        assert numbers_of(log) == list(range(RECORDS))


# ---- ownership -------------------------------------------------------------------------


def test_a_second_owner_is_refused_by_name(path):
    """E-two: in this process, and in another; and the lock ends with its owner."""
    with kafkalog.Log(path, config=CONFIG) as log:
        with pytest.raises(kafkalog.Locked):
            kafkalog.Log(path, config=CONFIG)
        program = (
            "import kafkalog, sys\n"
            "try:\n    kafkalog.Log(sys.argv[1])\n"
            "except kafkalog.Locked as error:\n"
            "    print(error)\n"
        )
        said = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        ).stdout
        assert str(os.getpid()) in said
        assert log.append(b"still mine") == 0
    kafkalog.Log(path, config=CONFIG).close()


def test_modes_are_private_whatever_the_umask(path):
    before = os.umask(0)
    try:
        with kafkalog.Log(path, config=CONFIG) as log:
            fill(log)
            log.flush()
            log.truncate(30)
            log.delete_before(5)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    modes = {p.name: oct(stat.S_IMODE(p.stat().st_mode)) for p in path.iterdir()}
    assert set(modes.values()) == {"0o600"}, modes


def test_a_crash_of_an_emptied_log_does_not_lower_its_epoch(log_dir):
    """All records are deleted, then a crash: later appends carry no older epoch."""
    with kafkalog.Log(log_dir) as log:
        rows = [batches.Row(b"%d" % i) for i in range(3)]
        log.append_as_follower(batches.batch(rows, base_offset=0, leader_epoch=9))
        log.delete_before(3)
        killed = trees.copy_tree(log_dir, log_dir.with_name("killed-0"))
    with kafkalog.Log(killed) as log:
        assert log.start_offset == log.end_offset == 3
        log.append(b"next")
        assert [record.leader_epoch for record in log.read()] >= [9]
        assert log.verify().clean


@pytest.mark.parametrize("left", [0, 30, 70], ids=["nothing", "half a header", "half a record"])
@pytest.mark.parametrize("hinted", [True, False])
def test_a_sealed_log_that_is_cut_while_it_is_open(path, hinted, left):
    """Each way to read reports that the file ends too early: none asks for a larger buffer, waits,
    or takes it for the end."""
    with kafkalog.Log(path) as log:
        fill(log, 10)
        log.roll()
        log.append(b"tail")
        log.flush()
        file = path / f"{0:020}.log"
        place = list(batches.headers(file.read_bytes()))[5].pos
        log.read_batches(0, max_bytes=place if hinted else 1 << 20)
        os.truncate(file, place + left)
        for read in (
            lambda: log.read_batches(5),
            lambda: log.read_batches(5, check_crcs=False),
            lambda: list(log.read(5)),
            lambda: list(log.scan(5).records()),
            lambda: log[7],
        ):
            with pytest.raises(kafkalog.errors.CorruptMessage):
                read()
        assert numbers_of_some(log, 5) == list(range(5))


def numbers_of_some(log, stop):
    return [number_of(r.key, r.value) for r in log.read(0, stop)]
