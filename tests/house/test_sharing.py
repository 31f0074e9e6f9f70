"""A run of many processes runs each test once, and every outcome is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sharing

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support import messages, sharing

def pytest_configure_node(node):
    messages.take_apart(node)

def pytest_sessionstart(session):
    messages.send_together(session.config)

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
ERRORS = """
import warnings
import pytest

@pytest.fixture
def broken(request):
    print("said by setup")
    warnings.warn("a warning of setup")
    assert request.node.name != "test_setup", "no setup"
    yield
    assert 0, "no teardown"

def test_setup(broken):
    pass

def test_teardown(broken):
    pass
"""


def test_a_process_that_dies_takes_no_test_along(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process runs the tests that were left, and each begins with its own share of the
    files.  Errors, output and warnings in setup and teardown are reported."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = --import-mode=importlib\n")
    pytester.makeconftest(CONFTEST)
    folder = pytester.mkpydir("cases")
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(FILE.format(dies=2 if name == "b" else -1))
    (folder / "test_e.py").write_text(ERRORS)
    words = ("-p", "xdist", "-n", "2", "--dist", "loadfile", "cases")
    done = pytester.runpytest_subprocess(*words)
    done.assert_outcomes(passed=17, failed=1, errors=2, warnings=2)
    assert done.outlines.count("said by setup") == 2
    imports = [line.split() for line in (pytester.path / "imports.txt").read_text().splitlines()]
    orders: dict[str, list[str]] = {}
    for process, name in imports:
        orders.setdefault(process, []).append(name)
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1, orders
    assert len({order[0] for order in orders.values()}) == 2, orders


LATE_END = """
import os
import threading
import time
from pathlib import Path
from tests.support import sharing

CLOSED, ASKED = threading.Event(), threading.Event()

def pytest_configure_node(node):
    take = node.process_from_remote

    def late(message):
        if not isinstance(message, tuple):  # the end of what the process sends
            CLOSED.set()
            ASKED.wait(60)
        take(message)

    node.process_from_remote = late

class Scheduling(sharing.Scheduling):
    def mark_test_complete(self, node, item_index, duration=0):
        nodeid = self.registered_collections[node][item_index]
        if nodeid.endswith("test_dies.py::test_one[1]") and not ASKED.is_set():
            assert CLOSED.wait(60)
        super().mark_test_complete(node, item_index, duration)

    def _assign_work_unit(self, node):
        try:
            super()._assign_work_unit(node)
        finally:
            if CLOSED.is_set():
                ASKED.set()

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


def test_tests_for_a_process_that_has_just_died_go_to_another(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last outcomes ask for more tests, before xdist notices its end.

    It is the only process: the files after that of the test that kills it are still to be
    assigned."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = --import-mode=importlib\n")
    pytester.makeconftest(LATE_END)
    folder = pytester.mkpydir("cases")
    for name, dies in (("dies", 2), ("later", -1), ("last", -1)):
        (folder / f"test_{name}.py").write_text(FILE.format(dies=dies))
    words = ("-p", "xdist", "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    files = [f"cases/test_{name}.py" for name in ("dies", "later", "last")]
    done = pytester.runpytest_subprocess(*words, *files)
    done.assert_outcomes(passed=12, failed=1)


SHARED = """
import pytest

@pytest.fixture(scope="session")
def server():
    print("server begins")
    yield
    print("server ends")

@pytest.fixture(scope="session")
def topic(server):
    yield
    print("topic ends")

@pytest.mark.parametrize("group", ["other", "one", "one_", "another", "one__", "one___"])
def test_it(group, request):
    if group.startswith("one"):
        request.getfixturevalue("topic")
    print(f"test {group}")
"""


def test_a_shared_server_ends_after_the_last_test_of_its_group(pytester: pytest.Pytester) -> None:
    """With all that depends on it; a later test gets another."""
    pytester.makepyfile(SHARED)
    ends = sharing.Ends(
        {"one": "server"}, lambda nodeid: nodeid.split("[")[1].rstrip("]").rstrip("_")
    )
    done = pytester.runpytest_inprocess("-s", "-q", "-p", "no:cacheprovider", plugins=[ends])
    done.assert_outcomes(passed=6)
    said = [line.lstrip(".") for line in done.outlines]
    once = ["server begins", "test one", "test one", "topic ends", "server ends"]
    assert [line.rstrip("_") for line in said if line.startswith(("test ", "server", "topic"))] == [
        "test other", *once, "test another", *once,
    ]  # fmt: skip
