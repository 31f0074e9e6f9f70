"""What a run of many processes shares out is run, each test once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support import sharing

def pytest_xdist_make_scheduler(config, log):
    return sharing.Scheduling(config, log)

def pytest_collection(session):
    sharing.import_share(session.config)
"""
FILE = """
import os
from pathlib import Path
import pytest

with Path("imports.txt").open("a") as imports:
    imports.write(f"{{os.getpid()}} {{Path(__file__).stem}}\\n")

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    died = Path("died.txt")
    if number == {dies} and not died.exists():
        died.touch()
        os._exit(7)
"""


def test_a_process_that_dies_takes_no_test_along(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another runs what it has left, and each begins with its own share of the files."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = --import-mode=importlib\n")
    pytester.makeconftest(CONFTEST)
    folder = pytester.mkpydir("cases")
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(FILE.format(dies=2 if name == "b" else -1))
    words = ("-p", "xdist", "-n", "2", "--dist", "loadfile", "cases")
    done = pytester.runpytest_subprocess(*words)
    done.assert_outcomes(passed=16, failed=1)
    imports = [line.split() for line in (pytester.path / "imports.txt").read_text().splitlines()]
    orders: dict[str, list[str]] = {}
    for process, name in imports:
        orders.setdefault(process, []).append(name)
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1, orders
    assert len({order[0] for order in orders.values()}) == 2, orders
