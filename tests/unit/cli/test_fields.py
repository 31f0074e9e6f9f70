"""JSON and CSV as records: the fast and the slow parsers agree, and numbers stay numbers."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.cli import arrowcsv, fields
from kafkalog.cli.blocks import read_blocks
from kafkalog.cli.common import CommandError, UsageError
from kafkalog.cli.inputs import Input, Shape, timestamp_parser

UTC = timestamp_parser.__globals__["timezone"].utc
PLAIN = Shape("auto", None, None, None, None, None, timestamp_parser(None, UTC, None), "error",
              plain_ms=True)  # fmt: skip

Told = tuple[list[tuple[bytes, bytes | None, int | None]], int, list[int], str]


def told(path: Path, shape: Shape) -> Told:
    """Records, blank lines, the numbers of bad lines, and the error that ended it."""
    rows: list[tuple[bytes, bytes | None, int | None]] = []
    bad: list[int] = []
    blank, end = 0, ""
    source = Input(str(path))
    try:
        for block in read_blocks(source, shape, lambda line, why: bad.append(line)):
            values = block.values if isinstance(block.values, list) else block.values.to_pylist()
            nothing = [None] * len(values)
            rows += zip(values, block.keys or nothing, block.times or nothing, strict=True)
            blank += block.blank
    except CommandError as problem:
        end = str(problem)
    finally:
        source.close()
    return rows, blank, bad, end


def without_fast_ways(path: Path, shape: Shape) -> Told:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "msgspec", None)
        patch.setattr(arrowcsv, "SMALL_BYTES", 1 << 62)
        return told(path, shape)


def with_fast_ways(path: Path, shape: Shape) -> Told:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrowcsv, "SMALL_BYTES", 0)
        patch.setattr(arrowcsv, "BLOCK_BYTES", 256)
        return told(path, shape)


@pytest.fixture(autouse=True)
def both_packages() -> None:
    pytest.importorskip("msgspec")
    pytest.importorskip("pyarrow")


CELLS = st.one_of(
    st.sampled_from(["", "0", "-1", "1.50", "1e5", "007", "+5", ".5", "5.", "1,000", "inf", "NaN",
                     "0x10", "1_000", " 1", "true", "null", 'a"b', '"', "\\", "\t", "two\nlines",
                     "\r", "\x01", "ö", "1700000000000", "99999999999999999999"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
)  # fmt: skip


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=30), st.booleans())
@example([["", "", ""]], False)
def test_rows_of_csv(tmp_path_factory, rows, quoted) -> None:
    """As csv.writer writes them: by columns and row by row alike, and the cells are the same."""
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerow(["id", "a b", 'q"t'])
    writer.writerows(rows)
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    shape = PLAIN._replace(key="a b")
    slow = without_fast_ways(path, shape)
    assert with_fast_ways(path, shape) == slow
    assert len(slow[0]) == len(rows)
    for (value, key, _), cells in zip(slow[0], rows, strict=True):
        found = json.loads(value)
        assert list(found) == ["id", "a b", 'q"t']
        assert key == cells[1].encode()
        for cell, kept in zip(cells, found.values(), strict=True):
            assert kept == cell if isinstance(kept, str) else kept == json.loads(cell)


@given(st.binary(max_size=200).map(lambda raw: b"a,b\n" + raw))
@example(b"a,b\n1,2\n\n3,4\n")
@example(b'a,b\n1,5" pipe\n"x"y,"z"w"v\n')
@example(b'a,b\n1,"never closed\n2,3\n')
@example(b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4\r5,6")
@example(b"a,b\n1,\xff\n")
@example(b"a,b\n1\n1,2,3\n4,5\n")
def test_anything_that_is_called_csv(tmp_path_factory, data) -> None:
    """Both parsers report bad rows, blank rows and the end alike."""
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(data)
    assert with_fast_ways(path, PLAIN) == without_fast_ways(path, PLAIN)


@pytest.mark.parametrize("ways", [with_fast_ways, without_fast_ways])
def test_a_cell_is_as_long_as_a_record_may_be(tmp_path, ways) -> None:
    """Also after a bad row, where row-by-row parsing starts; a longer cell makes a bad row."""
    path = tmp_path / "rows.csv"
    long, longer = "x" * 200_000, "y" * 1_000_001
    path.write_text(f"a,b\n1,{long}\n2,3,4\n5,{long}\n6,{longer}\n7,8\n")
    rows, _, bad, end = ways(path, PLAIN._replace(value="b", limit_bytes=1_000_000))
    assert ([value for value, _, _ in rows], bad, end) == (
        [long.encode(), long.encode(), b"8"], [3, 5], ""
    )  # fmt: skip


def test_a_line_end_inside_of_a_cell_is_whole_wherever_a_block_ends(tmp_path) -> None:
    """pyarrow drops an LF at the start of a block if the previous block ended in CR."""
    path = tmp_path / "rows.csv"
    for shift in range(257):
        path.write_bytes(b'a,b\n%s,"one\r\ntwo"\r\n' % (b"x" * shift) + b'"\r\r\n",y\r\n' * 60)
        assert with_fast_ways(path, PLAIN) == without_fast_ways(path, PLAIN)


@pytest.mark.parametrize("shape", [PLAIN, PLAIN._replace(key="a")])
def test_names_that_are_no_utf_8(tmp_path, shape) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,na\xefve\n1,2\n")
    found = with_fast_ways(path, shape)
    assert found == without_fast_ways(path, shape)
    assert "'utf-8' codec" in found[3]


JSON_LINES = [
    b'{"k":"a","t":1700000000000}', b'{"k":1.10,"t":5}', b'{"k":null,"t":"2026-01-01"}', b"", b"  ",
    b'{"k":"\\ud83d\\ude00","t":7,"x":"\xff"}', b'{"k":"\\ud800","t":1}', b'{"t":1}', b"[1]",
    b'{"k":true,"t":NaN}', b'{"k":{"n":[1]},"t":1e3}', b'{"k":1,"k":2,"t":1}', b'{"k":1,"t":1}x',
    b'{"k":"\x01","t":1}', b'{"k":12345678901234567890123,"t":9223372036854775808}', b'{"k":""',
    b'{"k":"a","t":true}', b'{"k":"a","t":-1}', b'{"k":1e400,"t":1}', b"\xef\xbb\xbf{}",
]  # fmt: skip


@given(st.lists(st.sampled_from(JSON_LINES), max_size=12), st.sampled_from([None, "k"]))
def test_lines_of_json(tmp_path_factory, lines, value) -> None:
    path = tmp_path_factory.mktemp("json") / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    shape = PLAIN._replace(key="k", timestamp="t", value=value)
    for one in (shape, PLAIN):
        assert with_fast_ways(path, one) == without_fast_ways(path, one)


def test_the_fast_ways_are_taken(tmp_path, monkeypatch) -> None:
    """A regular file is parsed in blocks to its end, never row by row."""
    rows = [{"id": i, "at": 1_700_000_000_000 + i, "who": f"c{i % 7}"} for i in range(20_000)]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with open(tmp_path / "r.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
    monkeypatch.setattr(arrowcsv, "SMALL_BYTES", 0)
    monkeypatch.setattr(fields, "_rows", None)
    monkeypatch.setattr(fields, "_json_row", None)
    shape = PLAIN._replace(key="who", timestamp="at")
    for name in ("r.jsonl", "r.csv"):
        found, _, bad, _ = told(tmp_path / name, shape)
        assert bad == []
        assert [json.loads(value) for value, _, _ in found] == rows
        assert [(key, at) for _, key, at in found] == [(r["who"].encode(), r["at"]) for r in rows]


def test_two_columns_of_one_name(tmp_path) -> None:
    (tmp_path / "r.csv").write_text("a,b,a\n1,2,3\n")
    assert without_fast_ways(tmp_path / "r.csv", PLAIN)[3].endswith("two columns are named 'a'")


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("a.log", {"key": "k"}, "--key: .*a.log is text, which has no fields.* --key-regex"),
        ("a.log", {"timestamp": "k"}, "--timestamp: .* --timestamp-regex"),
        ("a.log", {"value": "k"}, "--value: .*a.log is text"),
        ("a.csv", {"key_separator": b":"}, "--key-separator: is for text, .*a.csv is csv; --key"),
        ("a.json", {"key_regex": "x"}, "--key-regex: is for text, .*a.json is json; --key"),
        ("a.json.gz", {"timestamp_regex": "x"}, "--timestamp-regex: is for text"),
    ],
)
def test_an_option_of_another_format_is_refused(tmp_path, name, option, said) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=said):
        list(read_blocks(Input(str(path)), PLAIN._replace(**option), lambda line, why: None))
