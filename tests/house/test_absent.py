"""A run without a package skips the tests that import it, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import absent

pytest_plugins = ["pytester"]
ONE = """
import importlib.util

import pytest

def test_it_imports():
    import some_package

def test_it_imports_if_it_can():
    pytest.importorskip("some_package")

def test_it_asks():
    assert importlib.util.find_spec("some_package")

def test_nothing():
    pass
"""


def test_tests_of_an_absent_package_are_skipped(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        some_package="", test_one=ONE, test_all="import some_package\ndef test_it(): 1 / 0"
    )
    monkeypatch.setenv("PYTHONPATH", f"{root}:{pytester.path}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("KAFKALOG_ABSENT", "some_package")
    done = pytester.runpytest_subprocess("-p", absent.__name__, "-rs")
    done.assert_outcomes(passed=1, skipped=4)
    done.stdout.fnmatch_lines(["*some_package is absent in this run*"])
