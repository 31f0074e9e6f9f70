"""A run tells broken tests from unsteady ones: each test here runs its own pytest."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import again

pytest_plugins = ["pytester"]
Run = Callable[..., pytest.RunResult]
UNSTEADY = """
from pathlib import Path

import pytest

def nth():
    count = Path("count.txt")
    number = int(count.read_text()) if count.exists() else 0
    count.write_text(str(number + 1))
    return number

def again(name):
    flag = Path(name)
    found = flag.exists()
    flag.touch()
    return found

@pytest.fixture
def late(request):
    yield
    assert again("late") and request.node.name != "test_late_wrong", "too late"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def call(text: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=UNSTEADY + textwrap.dedent(text))
        if "xdist" in arguments:  # its processes need one that is as they are
            return pytester.runpytest_subprocess("-p", again.__name__, *arguments)
        return pytester.runpytest_inprocess(*arguments, plugins=[again])

    return call


@pytest.mark.parametrize(
    ("failures", "arguments"), [(2, ()), (1, ("-p", "xdist", "-n", "2"))], ids=["one", "xdist"]
)
def test_a_test_that_passes_alone_is_unsteady(
    run: Run, failures: int, arguments: tuple[str, ...]
) -> None:
    """The run names it with its first failure, and does not fail.  Errors in setup and teardown
    count as the test's failure."""
    done = run(
        f"""
        def test_steady():
            pass

        @pytest.mark.parametrize("word", ["a b - c"])
        def test_unsteady(word):
            print("said before it failed")
            assert nth() >= {failures}, "too early"

        def test_late(late):
            pass
        """,
        *arguments,
    )
    assert done.ret == 0
    for nodeid, wrong in (("test_unsteady?a b - c?", "early"), ("test_late", "late")):
        done.stdout.fnmatch_lines(
            ["*unsteady: failed, then passed alone*", f"test_it.py::{nodeid}",
             f"    AssertionError: too {wrong}", "*= 1 passed, 2 unsteady in *"]
        )  # fmt: skip
    done.stdout.no_fnmatch_line("*= FAILURES =*")
    kept = Path(again.KEPT).read_text()
    assert "too early" in kept and "said before it failed" in kept


def test_a_test_that_always_fails_fails_the_run(run: Run) -> None:
    """The test itself, or its teardown."""
    done = run(
        """
        def test_wrong():
            assert nth() == 17

        def test_late_wrong(late):
            pass

        def test_unsteady():
            assert again("flag")
        """
    )
    assert done.ret == 1
    assert Path("count.txt").read_text() == "3"
    done.stdout.fnmatch_lines(
        ["*= ERRORS =*", "*= FAILURES =*", "*= 1 failed, 1 passed, 1 error, 1 unsteady in *"]
    )


def test_many_unsteady_tests_fail_the_run(run: Run) -> None:
    text = """
        @pytest.mark.parametrize("number", range({}))
        def test_unsteady(number):
            assert nth() >= {}
        """
    most = again.MOST_UNSTEADY
    assert run(text.format(most, most)).ret == 0
    Path("count.txt").unlink()
    done = run(text.format(most + 1, most + 1))
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"More than {most} fail the run.", f"*= {most + 1} unsteady in *"])
    Path("count.txt").unlink()
    assert run(text.format(again.MOST_FAILED + 1, again.MOST_FAILED + 1)).ret == 1
    assert Path("count.txt").read_text() == str(again.MOST_FAILED + 1), "run again all the same"


def test_a_file_that_cannot_be_read_fails_the_run(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_broken="import nothing_of_that_name")
    assert run("def test_unsteady():\n    assert nth()", "--continue-on-collection-errors").ret
