"""An installation that cannot work says why, and what would."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def refusal(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """The last line that a Python prints on stderr when it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_build_without_a_compiler_names_it(tmp_path: Path) -> None:
    folders = ("--build-temp", tmp_path / "temp", "--build-lib", tmp_path / "lib")
    line = refusal(
        "setup.py", "--quiet", "build_ext", *folders, cwd=ROOT, CC="no-such-compiler -O2"
    )
    assert "a C compiler (no-such-compiler is not on PATH; CC names another) is missing" in line
    assert "apt-get install gcc" in line


def test_a_zip_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    packed = tmp_path / "program.pyz"
    with zipfile.ZipFile(packed, "w") as file:
        for path in (ROOT / "kafkalog").rglob("*.py"):
            file.write(path, path.relative_to(ROOT))
        file.writestr("__main__.py", "import kafkalog\nkafkalog.Log\n")
    line = refusal("-I", packed, cwd=tmp_path)
    assert line.startswith(f"ImportError: kafkalog cannot be imported from {packed}/kafkalog")
    assert "a shared library, which Python loads from a folder" in line


def test_a_python_that_runs_without_the_gil_is_refused(tmp_path: Path) -> None:
    program = (
        f"import sys; sys._is_gil_enabled = lambda: False; sys.path.insert(0, {str(ROOT)!r});"
        "import kafkalog._native"
    )
    line = refusal("-c", program, cwd=tmp_path)
    assert line.startswith("ImportError: kafkalog needs the GIL") and "PYTHON_GIL=1" in line


def test_a_python_that_runs_with_the_gil_is_not(tmp_path: Path) -> None:
    program = (
        f"import sys; sys._is_gil_enabled = lambda: True; sys.path.insert(0, {str(ROOT)!r});"
        "import kafkalog._native"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=100)
    assert done.returncode == 0
