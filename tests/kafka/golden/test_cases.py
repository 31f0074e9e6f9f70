"""The packed cases: complete, unpacked as packed, and never written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import cases


def test_nobody_wrote_to_the_unpacked_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte; otherwise tests read what another test left there: remove build/golden."""
    monkeypatch.delenv("KAFKALOG_SHARED", raising=False)
    cases.folder.cache_clear()
    folder = cases.folder()
    packed = {}
    for archive in cases.ARCHIVES.glob("*.tar.zst"):
        for member, data in cases.members(archive):
            if not member.isdir():
                packed[member.name] = data
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    cases.folder.cache_clear()
    assert found.keys() == packed.keys()
    assert [name for name, data in packed.items() if found[name] != data] == []
    assert len(packed) > 1000


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    case = tmp_path / "case"
    (case / "log").mkdir(parents=True)
    (case / "log" / "b").write_bytes(b"bytes")
    (case / "log" / "a").write_bytes(b"")
    cases.pack(case, tmp_path / "one")
    (case / "log" / "b").touch()
    (case / "log" / "b").chmod(0o600)
    cases.pack(case, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert [(m.name, data) for m, data in cases.members(tmp_path / "one") if not m.isdir()] == [
        ("case/log/a", b""),
        ("case/log/b", b"bytes"),
    ]


def test_another_set_is_taken_where_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKALOG_SHARED", str(tmp_path))
    cases.folder.cache_clear()
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        cases.folder()
    (tmp_path / "data" / "kafka").mkdir(parents=True)
    assert cases.folder() == tmp_path / "data" / "kafka"
    cases.folder.cache_clear()
