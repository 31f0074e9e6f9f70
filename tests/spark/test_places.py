"""Places: what planning asks many times, and what it keeps open for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark_kafkalog.columns import NAMES
from pyspark_kafkalog.options import parse_batch
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.places.opened import Opened
from pyspark_kafkalog.plan import Ends

import kafkalog
from tests.spark.conftest import write_topic

A0, A1 = ("a", 0), ("a", 1)


@pytest.fixture
def opens(monkeypatch) -> list[str]:
    """Every log that is opened."""
    seen: list[str] = []

    class Counted(kafkalog.Log):
        def __init__(self, path, *args, **named):
            seen.append(Path(path).name)
            super().__init__(path, *args, **named)

    monkeypatch.setattr(kafkalog, "Log", Counted)
    return seen


def test_the_ends_are_asked_of_logs_that_stay_open(tmp_path, opens):
    """A stream asks a hundred times a second."""
    write_topic(tmp_path, "a", 2, 10)
    place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
    keys = place.present()
    opens.clear()
    for _ in range(50):
        assert place.ends(keys) == {A0: Ends(0, 10), A1: Ends(0, 10)}
    assert sorted(opens) == ["a-0", "a-1"]
    with kafkalog.Log(tmp_path / "a-1") as log:
        log.append(b"x")
        assert place.ends(keys)[A1] == Ends(0, 11)
        log.delete_before(7)
        assert place.ends(keys)[A1] == Ends(7, 11)
    assert sorted(opens) == ["a-0", "a-1", "a-1"]
    place.close()


def test_a_partition_that_goes_or_is_made_anew_is_noticed(tmp_path, opens):
    write_topic(tmp_path, "a", 2, 10)
    place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
    keys = place.present()
    before = place.identities(keys)
    assert set(place.ends(keys)) == {A0, A1}
    (tmp_path / "a-0").rename(tmp_path / "old")
    assert set(place.ends(keys)) == {A1} == set(place.identities(keys))
    assert "a-0" in place.told_gone(A0)
    write_topic(tmp_path, "a", 1, 3)
    assert place.ends(keys)[A0] == Ends(0, 3)
    assert place.identities(keys)[A0] != before[A0]
    place.close()


def test_a_partition_without_segments_is_empty_and_then_not(tmp_path):
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("a", 1)
        place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
        keys = [A0]
        assert A0 in place.present()
        assert place.ends(keys) == {A0: Ends(0, 0)}
        assert place.at_times({A0: 5}) == {A0: None}
        store["a"][0].append(b"x")
        assert place.ends(keys) == {A0: Ends(0, 1)}
        place.close()


def test_few_descriptors_are_kept(tmp_path):
    for number in range(6):
        write_topic(tmp_path, f"t{number}", 1, 100)
    folders = [str(tmp_path / f"t{number}-0") for number in range(6)]
    opened = Opened(files_max=3)
    logs = [opened.get(folder, ("t", 0)) for folder in folders]
    assert len(opened) < 3 and logs[0].closed and not logs[-1].closed
    with opened.lent(folders[0], ("t", 0)) as lent:
        for folder in folders[1:]:
            opened.get(folder, ("t", 0))
        opened.forget(folders[0])
        assert not lent.closed and len(list(lent.read())) == 100
    assert lent.closed
    opened.close()
    assert len(opened) == 0
