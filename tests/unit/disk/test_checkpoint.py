"""Checkpoint files and the clean marker: Kafka's text, parsed strictly, never required."""

import errno
import itertools
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    DirectoryState,
    parse_offsets,
    readable_offsets,
    render_offsets,
)
from kafkalog.disk.directory import Directory
from kafkalog.errors import (
    CorruptLog,
    IoFailed,
    KafkalogError,
    Locked,
    NoSpace,
    NotFound,
    ReadOnly,
)
from kafkalog.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
tps = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
entries = st.dictionaries(tps, st.integers(0, 2**63 - 1), max_size=20)


@given(entries)
def test_round_trip(found):
    """Any valid topics, partitions and offsets."""
    assert parse_offsets(render_offsets(found)) == found


@given(st.lists(st.sampled_from(["a 0 5", "a 0", "b 1 9223372036854775808", "c 2147483648 1"])))
def test_the_valid_lines_of_a_damaged_file_are_kept(lines):
    """Whole valid lines are kept, and the file written from them can be read again."""
    kept = readable_offsets("\n".join([*lines, ""]).encode())
    assert parse_offsets(render_offsets(kept)) == kept == ({A0: 5} if "a 0 5" in lines else {})


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data):
    """The parser returns entries or refuses; nothing else."""
    try:
        found = parse_offsets(data)
    except CorruptLog:
        return
    assert all(offset >= 0 for offset in found.values())


@given(entries.filter(bool), st.data())
def test_a_torn_file_is_refused(found, data):
    """Every proper prefix, even one that only lacks digits of the last offset."""
    whole = render_offsets(found)
    with pytest.raises(CorruptLog):
        parse_offsets(whole[: data.draw(st.integers(1, len(whole) - 1))])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"1\n0\n", "line 1: found version '1'"),
        (b"\n0\n", "line 1"),
        (b"0\n", "line 2: found count ''"),
        (b"0\n-1\n", "line 2"),
        (b"0\n2\na 0 1\n", "line 2: found count '2', wanted '1'"),
        (b"0\n1\na 0 1\nb 0 1\n", "line 2: found count '1', wanted '2'"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n1\na 0 1 2\n", "line 3"),
        (b"0\n1\na  0 1\n", "line 3"),
        (b"0\n1\na 0 -1\n", "line 3"),
        (b"0\n1\na x 1\n", "line 3"),
        (b"0\n1\na 2147483648 1\n", "line 3"),
        (b"0\n1\na 0 9223372036854775808\n", "line 3"),
        (b"0\n2\na 0 1\na 0 2\n", "line 4: found a 0 a second time"),
        (b"0\n1\n\xff 0 1\n", "UTF-8"),
        (b"\0" * 64, "line 1"),
        (b"0\n1\na 0 1", "line 3: found the end"),
        (b"0\n99999999999\n", "line 2"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(data, word):
    """The message names the line, what was found and what was wanted."""
    with pytest.raises(CorruptLog, match=word):
        parse_offsets(data)


def test_an_empty_file_has_no_entries():
    """A crash right after the rename can leave zero bytes."""
    assert parse_offsets(b"") == {}
    assert parse_offsets(b"0\n0\n") == {}


def test_kafkas_own_checkpoints_are_read(kafka_cases):
    """Checkpoints of a directory in which DeleteRecords and retention were used."""
    state = DirectoryState(kafka_cases / "deleted" / "log", "r")
    assert state.clean
    assert state.log_start(TopicPartition("all-gone", 0)) == 304
    assert state.log_start(TopicPartition("ret-time", 0)) == -1
    assert state.recovery_point(TopicPartition("ret-time", 0)) == 397
    assert state.high_watermark(TopicPartition("both", 0)) == 284
    assert state.problems == []
    state.close()


# ---- the state of a directory -----------------------------------------------------------------


def test_saved_entries_are_read_at_the_next_open(tmp_path):
    """Each kind has its own file; entries that were not passed stay."""
    with_state(tmp_path, lambda s: s.save({A0: 5, B0: 7}, {A0: 2}, {A0: 4}))
    with_state(tmp_path, lambda s: s.save({A0: 6}))
    state = DirectoryState(tmp_path)
    assert [state.recovery_point(tp) for tp in (A0, A1, B0)] == [6, -1, 7]
    assert [state.log_start(tp) for tp in (A0, B0)] == [2, -1]
    assert state.high_watermark(A0) == 4
    state.close()
    assert (tmp_path / RECOVERY_POINT).read_bytes() == b"0\n2\na 0 6\nb 0 7\n"


def with_state(path, work):
    state = DirectoryState(path)
    try:
        work(state)
    finally:
        state.close()


def test_none_and_forget_take_entries_out(tmp_path):
    """None removes an entry from one file, `forget` from all."""

    def work(state):
        state.save({A0: 5, A1: 5}, {A0: 2, A1: 3}, {A1: 5})
        state.save(log_starts={A0: None})
        assert [state.log_start(tp) for tp in (A0, A1)] == [-1, 3]
        state.forget([A1])
        assert state.recovery_point(A1) == -1
        assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 5, A1: 5}
        state.save({}, {}, {})

    with_state(tmp_path, work)
    state = DirectoryState(tmp_path, "r")
    assert [state.recovery_point(tp) for tp in (A0, A1)] == [5, -1]
    assert [state.log_start(tp) for tp in (A0, A1)] == [-1, -1]
    state.close()


def test_an_unchanged_file_is_not_written_again(tmp_path):
    """An idle directory costs no fsync."""

    def work(state):
        state.save({A0: 5}, {}, {})
        before = os.stat(tmp_path / RECOVERY_POINT).st_ino
        state.save({A0: 5}, {}, {})
        assert os.stat(tmp_path / RECOVERY_POINT).st_ino == before
        assert not (tmp_path / LOG_START).exists()
        state.save({A0: 6})
        assert os.stat(tmp_path / RECOVERY_POINT).st_ino != before

    with_state(tmp_path, work)


def test_a_noted_log_is_written_by_the_next_save(tmp_path):
    """Its entries are known immediately, and on disk with the next write of each file."""

    def work(state):
        state.note(A0, 9, None, 8)
        assert (state.recovery_point(A0), state.high_watermark(A0)) == (9, 8)
        assert not (tmp_path / RECOVERY_POINT).exists()
        state.save({})
        assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 9}
        assert not (tmp_path / HIGH_WATERMARK).exists()

    with_state(tmp_path, work)


def test_the_first_use_of_a_new_log_writes_down_all_new_ones(tmp_path):
    """Only once; without a recovery point a hole in the middle would not be noticed."""

    def work(state):
        state.note(A0, 0, None, 0)
        state.note(A1, 0, None, 0)
        assert not (tmp_path / RECOVERY_POINT).exists()
        state.settle(B0)
        assert not (tmp_path / RECOVERY_POINT).exists()
        state.settle(A0)
        before = os.stat(tmp_path / RECOVERY_POINT).st_ino
        assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 0, A1: 0}
        state.settle(A1)
        assert os.stat(tmp_path / RECOVERY_POINT).st_ino == before

    with_state(tmp_path, work)


def test_a_name_that_is_used_again_has_no_checkpoint_left(tmp_path):
    """Its entries leave the disk before its folder is created; without any, nothing is written."""

    def work(state):
        state.renew([A1, B0])
        assert not (tmp_path / RECOVERY_POINT).exists()
        state.save({A0: 7, A1: 8}, {A0: 3}, {})
        state.forget([A0])
        assert parse_offsets((tmp_path / LOG_START).read_bytes()) == {A0: 3}
        state.renew([A0])
        assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A1: 8}
        assert parse_offsets((tmp_path / LOG_START).read_bytes()) == {}

    with_state(tmp_path, work)


def test_a_truncation_lowers_every_checkpoint_before_it_begins(tmp_path):
    """Checkpoints below the truncation stay as they are."""

    def work(state):
        state.save({A0: 80, A1: 80}, {A0: 60}, {A0: 90, A1: 40})
        with state.truncating(A0, 50):
            on_disk = DirectoryState(tmp_path, "r")
            assert on_disk.recovery_point(A0) == 50
            assert on_disk.log_start(A0) == -1
            assert on_disk.high_watermark(A0) == 50
            assert on_disk.recovery_point(A1) == 80
            on_disk.close()
        with state.truncating(A1, 50):
            assert state.recovery_point(A1) == 50
            assert state.high_watermark(A1) == 40

    with_state(tmp_path, work)


@pytest.fixture
def io(native_test):
    lib = native_test[1]
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


def test_files_that_are_saved_together_wait_together(tmp_path, io):
    """All files' bytes are synced at the same time, then all their names at once."""

    def work(state):
        state.save({A0: 5})
        one = io.kl_io_calls(b"fsync")
        assert one == 2
        state.save({A0: 6}, {A0: 2}, {A0: 6}, {A0: 1})
        assert io.kl_io_calls(b"fsync") - one == 4 + 1

    with_state(tmp_path, work)


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_of_files_that_are_saved_together_none_is_replaced_when_one_fails(tmp_path, io, call):
    def work(state):
        state.save({A0: 5}, {A0: 2})
        io.kl_io_fail(call.encode(), 2, errno.ENOSPC, 0, 0)
        with pytest.raises((IoFailed, NoSpace)):
            state.save({A0: 9}, {A0: 8}, {A0: 9})
        assert (state.recovery_point(A0), state.log_start(A0)) == (5, 2)
        assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 5}
        assert parse_offsets((tmp_path / LOG_START).read_bytes()) == {A0: 2}
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
        state.save({A0: 9}, {A0: 8}, {A0: 9})
        assert parse_offsets((tmp_path / HIGH_WATERMARK).read_bytes()) == {A0: 9}

    with_state(tmp_path, work)


MALFORMED = [b"0\n5\na 0 1\n", b"0\n1\na 0", b"\xff"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *itertools.product([RECOVERY_POINT, HIGH_WATERMARK], [b"", b"\0" * 512, *MALFORMED]),
        *itertools.product([LOG_START], [b"", b"\0" * 512]),
    ],
)
def test_a_damaged_checkpoint_never_stops_an_opening(tmp_path, name, damage):
    """It is ignored and reported, and the next save replaces it."""
    with_state(tmp_path, lambda s: s.save({A0: 5}, {A0: 2}, {A0: 4}))
    (tmp_path / name).write_bytes(damage)
    state = DirectoryState(tmp_path)
    found = {
        RECOVERY_POINT: state.recovery_point(A0),
        LOG_START: state.log_start(A0),
        HIGH_WATERMARK: state.high_watermark(A0),
    }
    expected = {RECOVERY_POINT: 5, LOG_START: 2, HIGH_WATERMARK: 4} | {name: -1}
    assert found == expected
    assert [str(tmp_path / name) in problem for problem in state.problems] == [True] * bool(damage)
    state.save({A0: 6}, {A0: 3}, {A0: 5})
    state.close()
    state = DirectoryState(tmp_path, "r")
    assert (state.recovery_point(A0), state.problems) == (6, [])
    state.close()


def test_an_absurdly_large_checkpoint_is_not_read(tmp_path):
    """The limit is checked before any of it is read into memory."""
    with open(tmp_path / RECOVERY_POINT, "wb") as file:
        file.truncate(1 << 40)
    state = DirectoryState(tmp_path, "r")
    assert state.recovery_point(A0) == -1
    assert "wanted at most" in state.problems[0]
    state.close()


def test_a_reader_needs_no_lock_and_writes_nothing(tmp_path):
    """It opens next to a writer; a save is refused, and not a byte of the directory changes."""
    writer = DirectoryState(tmp_path)
    writer.save({A0: 5})
    before = sorted(os.listdir(tmp_path))
    reader = DirectoryState(tmp_path, "r")
    assert reader.recovery_point(A0) == 5
    with pytest.raises(ReadOnly, match=RECOVERY_POINT):
        reader.save({A0: 6})
    reader.close()
    writer.close()
    assert sorted(os.listdir(tmp_path)) == before


def test_a_second_owner_is_refused_until_the_first_has_closed(tmp_path):
    """It is refused immediately, with the owner's pid."""
    first = DirectoryState(tmp_path)
    with pytest.raises(Locked, match=str(os.getpid())):
        DirectoryState(tmp_path)
    first.close()
    DirectoryState(tmp_path).close()


def test_a_missing_directory_is_made_only_when_asked(tmp_path):
    """It gets mode 0700; a reader never creates one."""
    path = tmp_path / "new"
    for mode in ("r", "w"):
        with pytest.raises(NotFound):
            DirectoryState(path, mode)
    with pytest.raises(NotFound):
        DirectoryState(path, "r", create=True)
    DirectoryState(path, create=True).close()
    assert path.stat().st_mode & 0o777 == 0o700


# ---- log starts ----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", MALFORMED)
def test_log_starts_that_cannot_be_read_are_refused(tmp_path, damage):
    """Otherwise deleted records would be visible again; the message names the remedy."""
    with_state(tmp_path, lambda s: s.save({A0: 5}, {A0: 2}, {A0: 4}))
    (tmp_path / LOG_START).write_bytes(damage)
    for mode in ("r", "w"):
        with pytest.raises(CorruptLog, match=f"{LOG_START}: .*repair"):
            DirectoryState(tmp_path, mode)


@pytest.mark.parametrize("damage", [None, b"", b"0\n1\na 0 1\n", *MALFORMED])
def test_after_a_clean_close_the_marker_repeats_them(tmp_path, damage):
    """The marker repeats them for any damage of the file; a writer writes it again."""
    with_state(tmp_path, lambda s: (s.save({A0: 5}, {A0: 2}, {A0: 4}), s.mark_clean()))
    whole = (tmp_path / LOG_START).read_bytes()
    for mode in ("r", "w"):
        if damage is None:
            (tmp_path / LOG_START).unlink(missing_ok=True)
        else:
            (tmp_path / LOG_START).write_bytes(damage)
        state = DirectoryState(tmp_path, mode)
        assert (state.clean, state.log_start(A0)) == (True, 2)
        assert any(LOG_START in problem for problem in state.problems)
        state.close()
    assert (tmp_path / LOG_START).read_bytes() == whole


@pytest.mark.parametrize("ended", [False, True])
def test_a_reader_believes_a_writer_that_begins_while_it_looks(tmp_path, monkeypatch, ended):
    """The writer begins between the reads of the marker and of the log starts, which are newer."""
    with_state(tmp_path, lambda s: (s.save({A0: 5}, {A0: 2}, {A0: 4}), s.mark_clean()))
    read = Directory.read

    def meanwhile(self, name, limit):
        if name == LOG_START:
            monkeypatch.setattr(Directory, "read", read)
            with_state(tmp_path, lambda s: (s.save(None, {A0: 3}), s.mark_clean() if ended else 0))
        return read(self, name, limit)

    monkeypatch.setattr(Directory, "read", meanwhile)
    state = DirectoryState(tmp_path, "r")
    assert (state.clean, state.log_start(A0), state.problems) == (False, 3, [])
    state.close()


def test_a_new_log_start_takes_the_marker_away_first(tmp_path):
    """The marker would otherwise restore the old one."""
    with_state(tmp_path, lambda s: (s.save({A0: 5}, {A0: 2}, {A0: 4}), s.mark_clean()))

    def work(state):
        state.save(log_starts={A0: 2})  # unchanged
        assert (tmp_path / CLEAN_MARKER).exists()
        state.save(log_starts={A0: 3})
        assert not (tmp_path / CLEAN_MARKER).exists()

    with_state(tmp_path, work)


def test_the_marker_of_many_partitions_is_seen(tmp_path):
    """It has an entry for each, and is longer than the limit of other small files."""
    many = [TopicPartition("a", number) for number in range(5_000)]

    def work(state):
        for tp in many:
            state.note_derived(tp, (1 << 62) + tp.partition)
        state.mark_clean()

    with_state(tmp_path, work)
    state = DirectoryState(tmp_path, "r")
    assert (tmp_path / CLEAN_MARKER).stat().st_size > 1 << 16
    assert state.clean
    assert [state.derived_sum(tp) & 0xFFFF for tp in many] == list(range(5_000))
    state.close()


@pytest.mark.parametrize("bit", range(0, 8 * 150, 7))
def test_a_marker_with_a_wrong_bit_vouches_for_nothing(tmp_path, bit):
    """Or it says what it did before: log starts come from the marker or the file, both right."""
    with_state(tmp_path, lambda s: (s.save({A0: 5}, {A0: 2}, {A0: 4}), s.mark_clean()))
    data = bytearray((tmp_path / CLEAN_MARKER).read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    (tmp_path / CLEAN_MARKER).write_bytes(data)
    state = DirectoryState(tmp_path, "r")
    assert state.log_start(A0) == 2
    state.close()


# ---- the clean marker ---------------------------------------------------------------------------


def test_the_marker_says_whether_the_directory_was_closed_cleanly(tmp_path):
    """It has Kafka's format, and stays until a log removes it."""
    state = DirectoryState(tmp_path)
    assert not state.clean
    state.mark_clean()
    state.close()
    found = json.loads((tmp_path / CLEAN_MARKER).read_bytes())
    assert list(found) == ["version", "brokerEpoch", "kafkalog"]
    assert (found["version"], found["brokerEpoch"]) == (0, -1)
    for mode in ("r", "w"):
        state = DirectoryState(tmp_path, mode)
        assert state.clean
        state.close()
        assert (tmp_path / CLEAN_MARKER).exists()


def test_an_empty_marker_of_an_older_kafka_counts(tmp_path):
    """Its existence is what matters."""
    (tmp_path / CLEAN_MARKER).write_bytes(b"")
    state = DirectoryState(tmp_path)
    assert state.clean
    state.close()


@pytest.mark.parametrize("change", ["grown", "shorter", "another", "none"])
def test_the_marker_of_a_lone_folder_vouches_for_its_last_segment(tmp_path, change):
    """A folder that another program has changed since does not count as clean."""
    last = tmp_path / f"{20:020}.log"
    (tmp_path / f"{0:020}.log").write_bytes(b"x" * 9)
    last.write_bytes(b"x" * 5)
    state = DirectoryState(tmp_path, own=True)
    state.mark_clean()
    state.close()
    state = DirectoryState(tmp_path, own=True)
    assert state.clean
    state.close()
    if change == "another":
        (tmp_path / f"{30:020}.log").write_bytes(b"")
    elif change == "none":
        (tmp_path / CLEAN_MARKER).write_bytes(b"{}")
    else:
        last.write_bytes(b"x" * (6 if change == "grown" else 4))
    state = DirectoryState(tmp_path, own=True)
    assert not state.clean
    assert "not believed" in state.problems[0]
    state.close()


def test_of_several_files_one_that_cannot_be_replaced_leaves_no_other(tmp_path):
    """A folder has the second file's name: the first file is replaced, no other is left behind."""
    (tmp_path / "b").mkdir()
    with Directory(tmp_path) as directory, pytest.raises(KafkalogError):
        directory.replace_all({"a": b"1", "b": b"2", "c": b"3"})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]
