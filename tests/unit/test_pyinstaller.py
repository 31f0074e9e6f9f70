"""A program in one file, made by PyInstaller, has a broker and clients in it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / "kafkalog" / "_pyinstaller"
PROGRAM = """
import tempfile

import kafkalog

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, kafkalog.Broker(folder) as broker:
        where = broker.bootstrap_servers
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with kafkalog.Producer(where, compression=codec) as producer:
                producer.send("orders", codec.encode()).result(30)
        with kafkalog.Consumer(
            where, "orders", group="one", auto_offset_reset="earliest"
        ) as consumer:
            print(*sorted(next(iter(consumer)).value.decode() for _ in range(5)))
        scan = broker.store.scan("orders")
        print(sum(len(batch.numpy("offset")) for batch in scan), "rows")
"""


def test_pyinstaller_finds_the_hook_by_its_entry_point() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "[project.entry-points.pyinstaller40]\n" in text
    (line,) = (line for line in text.splitlines() if line.startswith("hook-dirs = "))
    name = line.split('"')[1]
    point = importlib.metadata.EntryPoint("hook-dirs", name, "pyinstaller40")
    assert point.load()() == [str(HOOKS)]
    assert (HOOKS / "hook-kafkalog.py").is_file()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_program_in_one_file_runs_a_broker(tmp_path: Path) -> None:
    pytest.importorskip("PyInstaller")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYINSTALLER_CONFIG_DIR": str(tmp_path)}
    environment.pop("KAFKALOG_NATIVE", None)
    command = [sys.executable, "-m", "PyInstaller", "--onefile", "--log-level", "WARN"]
    built = subprocess.run(
        [*command, "--additional-hooks-dir", HOOKS, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1600,
    )
    assert built.returncode == 0, built.stderr
    # Neither Python nor this checkout is in sight.
    done = subprocess.run(
        [tmp_path / "dist" / "program"],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.stdout, done.stderr) == ("gzip lz4 none snappy zstd\n5 rows\n", "")
