"""The README's Python runs exactly as printed."""

import re

import pytest

import kafkalog


@pytest.fixture
def beside_demo_data(tmp_path, monkeypatch):
    """A working directory with a `demo-data` like the demo's, with one partition of it."""
    times = [1_387_900_000_000 + 1000 * i for i in range(45_000)]
    keys = [(b"B6", b"US", b"F9")[i % 3] for i in range(45_000)]
    (tmp_path / "demo-data").mkdir()
    (tmp_path / "data").mkdir()
    with kafkalog.Log(tmp_path / "demo-data" / "flights-0") as log:
        log.append_many([b"{}"] * 45_000, keys, times, compression="zstd", batch_bytes=1 << 16)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_readme_runs(root, beside_demo_data, capsys) -> None:
    for package in ("duckdb", "kafka", "polars", "pyarrow"):
        pytest.importorskip(package)
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    # The first block prints what it appended; the others leave what they counted.
    assert capsys.readouterr().out == "[(0, b'alice', b'3 apples')]\n"
    lines = [line for line in blocks[0].splitlines() if line]
    assert len(lines) <= 6
    assert names["table"].num_rows == 45_000
    assert dict(names["carriers"].iter_rows()) == {b"B6": 15_000, b"US": 15_000, b"F9": 15_000}
    assert names["log"].offset_at(1_387_908_000_000) == 8_000
    assert (names["sent"].topic, names["sent"].offset) == ("orders", 0)
    assert names["sales"] == [b"3 apples", b"2 pears"]
    assert names["topics"] == ["sales"]
    names["log"].close()
