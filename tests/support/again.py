"""Tells broken tests from unsteady ones: `pytest -p tests.support.again`, as `make test` runs it.

Tests that fail are run again after the run, alone and in one process, up to twice.  A test that
passes then is *unsteady*: it is listed in a section at the end and does not fail the run, but it
has to be repaired.  A test that fails every time fails the run, and so do more than MOST_UNSTEADY
unsteady ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MOST_UNSTEADY = 10
MOST_FAILED = 3 * MOST_UNSTEADY
"""With more failures than these nothing is run again: so many are not bad luck."""
TRIES = 2
KEPT = Path("build", "unsteady.txt")
"""The complete report of each unsteady test's first failure."""


def pytest_configure(config: pytest.Config) -> None:
    # Not in xdist's workers: the process that they report to decides.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Again(config), "tests-again")


class Again:
    """The tests that failed in this run, and their outcome when they were run again."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failures: dict[str, list[pytest.TestReport]] = {}
        self._elsewhere = False
        self._unsteady: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._elsewhere |= report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """After the last test and before the terminal's summary, which shows what is left."""
        failed = list(self._failures)
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST_FAILED:
            return
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        for number in range(1, TRIES + 1):
            terminal.write_line("")
            terminal.write_line(f"run again, alone ({number} of {TRIES}): {len(failed)} failed")
            passed = self._passed(failed)
            failed = [nodeid for nodeid in failed if nodeid not in passed]
            if not failed:
                break
        self._unsteady = [nodeid for nodeid in self._failures if nodeid not in failed]
        self._move(terminal.stats)
        if not failed and not self._elsewhere and len(self._unsteady) <= MOST_UNSTEADY:
            session.testsfailed = 0
            session.exitstatus = pytest.ExitCode.OK

    def _passed(self, nodeids: list[str]) -> set[str]:
        """Those of the tests that pass in a separate process, which prints the failures."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rpfE", "-p", "no:cacheprovider", *nodeids],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            cwd=self._config.invocation_params.dir,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        wrong = [line.split(" ", 1)[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return {
            nodeid
            for nodeid in nodeids
            if f"PASSED {nodeid}" in lines
            and not any(one == nodeid or one.startswith(f"{nodeid} - ") for one in wrong)
        }

    def _move(self, stats: dict[str, list[Any]]) -> None:
        """Move reports of unsteady tests out of those that the summary counts as failures."""
        for kind in ("passed", "failed", "error"):
            left = [r for r in stats.get(kind, []) if r.nodeid not in self._unsteady]
            stats.pop(kind, None)
            if left:
                stats[kind] = left
        if self._unsteady:
            stats["unsteady"] = [self._failures[nodeid][0] for nodeid in self._unsteady]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._unsteady:
            return
        terminalreporter.section("unsteady: failed, then passed alone")
        for nodeid in self._unsteady:
            terminalreporter.write_line(nodeid)
            terminalreporter.write_line(f"    {last_line(self._failures[nodeid][0])}")
        whole = [f"{n}\n\n{_whole(self._failures[n][0])}\n" for n in self._unsteady]
        kept = self._config.invocation_params.dir / KEPT
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("\n".join(whole))
        terminalreporter.write_line(f"Their failures: {KEPT}")
        if len(self._unsteady) > MOST_UNSTEADY:
            terminalreporter.write_line(f"More than {MOST_UNSTEADY} fail the run.", red=True)


def _whole(report: pytest.TestReport) -> str:
    """The error, and what the test wrote."""
    written = (f"---- {title}\n{text}" for title, text in report.sections)
    return "\n".join([report.longreprtext, *written])


def last_line(report: pytest.TestReport) -> str:
    """The error, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0 if crash else -1] if lines else "no reason was given"
