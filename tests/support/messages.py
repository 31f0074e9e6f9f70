"""Messages from the processes of a run to the one that started them: one message a test.

xdist sends six, written and read by Python code, which takes as long as running an empty test.
"""

from __future__ import annotations

import marshal
from typing import Any

import pytest

HELD = frozenset({"logstart", "testreport", "logfinish", "warning_recorded"})
"""Events within a test, which are sent at its end."""


def send_together(config: pytest.Config) -> None:
    """In a process that runs tests: send a test's events in one message from now on."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = _Sending(plugin.channel, _all_wanted(config))


def take_apart(node: Any) -> None:
    """In the process that started it, before it sends anything."""
    process = node.process_from_remote

    def take(message: Any) -> None:
        for event in marshal.loads(message) if isinstance(message, bytes) else (message,):
            process(event)

    node.process_from_remote = take


def _all_wanted(config: pytest.Config) -> bool:
    """True if an option asks for setups and teardowns that passed without output."""
    option = config.option
    return option.durations is not None or getattr(option, "xmlpath", None) is not None


class _Sending:
    """Replaces xdist's `sendevent`."""

    def __init__(self, channel: Any, all_wanted: bool) -> None:
        self._channel = channel
        self._all_wanted = all_wanted
        self._held: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, **kwargs: Any) -> None:
        report = kwargs["data"] if name == "testreport" else {}
        passed = report.get("outcome") == "passed"
        if passed and report["when"] != "call" and not report["sections"] and not self._all_wanted:
            return
        self._held.append((name, kwargs))
        if name not in HELD or (report and not passed):
            held, self._held = self._held, []
            self._channel.send(marshal.dumps(held))
