"""The small files of a directory: names, modes, links, and atomic replacement."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from kafkalog import errors


@pytest.fixture
def open_umask():
    """A umask that masks nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_replace_then_read(directory):
    directory.replace("a", b"one")
    assert directory.read("a") == b"one"
    directory.replace("a", b"")
    assert directory.read("a") == b""


def test_replace_leaves_no_other_file(directory, tmp_path):
    directory.replace("a", b"one")
    directory.replace("a", b"two")
    assert os.listdir(tmp_path) == ["a"]


def test_open_files_keep_their_bytes(directory, tmp_path):
    directory.replace("a", b"old")
    with open(tmp_path / "a", "rb") as reader:
        directory.replace("a", b"new")
        assert reader.read() == b"old"


def test_files_are_for_their_owner_only(directory, tmp_path, open_umask):
    directory.replace("a", b"secret")
    assert mode(tmp_path / "a") == 0o600
    directory.make("sub")
    assert mode(tmp_path / "sub") == 0o700
    directory.lock()
    assert mode(tmp_path / ".lock") == 0o600


def test_a_replacement_restricts_the_file_mode(directory, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o666)
    (tmp_path / "a.tmp").write_bytes(b"left by a crash")
    (tmp_path / "a.tmp").chmod(0o666)
    directory.replace("a", b"new")
    assert mode(tmp_path / "a") == 0o600


def test_create_makes_all_that_is_missing(open_directory, tmp_path, open_umask):
    open_directory(tmp_path / "x" / "y" / "z", create=True).replace("a", b"1")
    assert (tmp_path / "x/y/z/a").read_bytes() == b"1"
    assert mode(tmp_path / "x") == mode(tmp_path / "x/y/z") == 0o700
    open_directory(tmp_path / "x" / "y" / "z", create=True)


@pytest.mark.parametrize("path", ["rel", "rel/a//b/", "./rel/c"])
def test_create_with_a_relative_path(open_directory, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    open_directory(path, create=True).replace("a", b"1")
    assert (tmp_path / path / "a").exists()


def test_open_without_create_makes_nothing(open_directory, tmp_path):
    with pytest.raises(errors.NotFound):
        open_directory(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_a_file_is_no_directory(open_directory, tmp_path):
    (tmp_path / "f").write_bytes(b"")
    for create in (False, True):
        with pytest.raises(errors.IoFailed):
            open_directory(tmp_path / "f", create=create)
        with pytest.raises(errors.IoFailed):
            open_directory(tmp_path / "f" / "below", create=create)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "n" * 256])
def test_a_name_is_one_component(directory, tmp_path, name):
    for call in (
        lambda: directory.replace(name, b"x"),
        lambda: directory.read(name),
        lambda: directory.unlink(name),
        lambda: directory.rename(name, "b"),
        lambda: directory.rename("b", name),
        lambda: directory.make(name),
    ):
        with pytest.raises(errors.ArgumentError):
            call()
    assert os.listdir(tmp_path) == []


def test_links_are_not_followed(directory, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "a.tmp").symlink_to(target)
    (tmp_path / ".lock").symlink_to(target)
    with pytest.raises(errors.IoFailed):
        directory.read("link")
    with pytest.raises(errors.IoFailed):
        directory.lock()
    directory.replace("a", b"ours")
    directory.replace("link", b"ours")
    assert target.read_bytes() == b"theirs"
    assert not (tmp_path / "link").is_symlink()


def test_a_pipe_or_directory_in_place_of_a_file_is_refused_at_once(directory, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub").mkdir()
    for name in ("pipe", "sub"):
        with pytest.raises(errors.CorruptLog, match="regular file"):
            directory.read(name)


def test_a_small_buffer_is_told_the_size(directory):
    directory.replace("a", bytes(100))
    with pytest.raises(errors.BufferTooSmall, match="100 bytes"):
        directory.read("a", room=99)
    assert directory.read("a", room=100) == bytes(100)


def test_rename_and_unlink(directory, tmp_path):
    directory.replace("a", b"1")
    directory.rename("a", "b")
    assert directory.read("b") == b"1"
    directory.unlink("b")
    directory.sync()
    assert os.listdir(tmp_path) == []
    with pytest.raises(errors.NotFound):
        directory.unlink("b")
    with pytest.raises(errors.NotFound):
        directory.rename("b", "c")


def test_a_closed_directory_answers_closed(directory):
    directory.close()
    directory.close()
    for call in (
        directory.sync,
        directory.lock,
        lambda: directory.replace("a", b""),
        lambda: directory.read("a"),
        lambda: directory.make("a"),
    ):
        with pytest.raises(errors.Closed):
            call()
    assert directory.locked() == -1


def test_no_descriptor_is_left_open(open_directory, tmp_path):
    for _ in range(20):
        one = open_directory(tmp_path / "d", create=True)
        one.lock()
        one.replace("a", b"1")
        one.read("a")
        with pytest.raises(errors.NotFound):
            one.read("b")
        with pytest.raises(errors.BufferTooSmall):
            one.read("a", room=0)
        one.close()
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    assert not [link for link in links if link.startswith(str(tmp_path))]
