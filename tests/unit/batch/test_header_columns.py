"""Headers as an Arrow array of lists, compared with Python lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors

pa = pytest.importorskip("pyarrow")

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROWS: list[list[tuple[str, bytes | None]] | None] = [
    [("a", b"1"), ("a", None)],
    None,
    [],
    [("\u00e9", b"")],
    *([[("n", b"%d" % i)] * (i % 4) for i in range(300)]),
]


def arrow(rows: Any = ROWS, kind: Any = pa.list_) -> Any:
    listed = [row and [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array([None if r is None else r or [] for r in listed], kind(PAIR))


def written(folder: Path, headers: Any, count: int = len(ROWS)) -> list[list[Any]]:
    with kafkalog.Log(folder) as log:
        log.append_many([b"v"] * count, headers=headers, batch_bytes=500)
        return [list(record.headers) for record in log.read()]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_the_same_as_lists(tmp_path: Path, kind: Any) -> None:
    found = written(tmp_path / "arrow", arrow(kind=kind))
    assert found == written(tmp_path / "lists", ROWS) == [list(row or []) for row in ROWS]


def test_of_a_slice(tmp_path: Path) -> None:
    found = written(tmp_path / "log", arrow().slice(3, 100), 100)
    assert found == [list(row or []) for row in ROWS[3:103]]


def test_in_chunks(tmp_path: Path) -> None:
    chunks = pa.chunked_array([arrow(ROWS[:2]), arrow(ROWS[2:])])
    assert written(tmp_path / "log", chunks) == [list(row or []) for row in ROWS]


def test_pairs_under_a_null_list_are_ignored(tmp_path: Path) -> None:
    """Pairs stored under a null list are ignored."""
    pairs = arrow([[("a", b"1")], [("b", b"2")], [("c", b"3")]])
    hidden = pa.ListArray.from_arrays(
        pairs.offsets, pairs.flatten(), mask=pa.array([False, True, False])
    )
    found = written(tmp_path / "log", hidden, 3)
    assert found == [[("a", b"1")], [], [("c", b"3")]]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (pa.array([b"x"] * 2), r"found an Arrow array of binary, wanted a list"),
        (pa.array([[1], [2]]), r"list<.*int64>, wanted a list"),
        (pa.array([[{"key": "a"}], []]), r"wanted a list of structs of two fields"),
        (pa.array([[], [None]], pa.list_(PAIR)), r"headers\[1\]: found null"),
        (
            pa.array([[], [{"key": None, "value": b""}]], pa.list_(PAIR)),
            r"headers\[1\]: found a header without a name",
        ),
        (pa.array([[]], pa.list_(PAIR)), r"headers: found 1 rows, wanted 2"),
    ],
)
def test_invalid_headers(tmp_path: Path, headers: Any, said: str) -> None:
    with (
        kafkalog.Log(tmp_path / "log") as log,
        pytest.raises(errors.ArgumentError, match=said),
    ):
        log.append_many([b"a", b"b"], headers=headers)
    with kafkalog.Log(tmp_path / "log", mode="r") as log:
        assert log.end_offset == 0
