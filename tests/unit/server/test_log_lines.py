"""The lines that a broker logs."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.logs.limit import LINES_MAX
from kafkalog.wire import apis
from tests.support.raw import Raw


def test_a_library_sets_up_nothing(tmp_path: Path) -> None:
    """A program that embeds a broker decides what becomes of its lines."""
    program = (
        "import logging, sys\n"
        "from kafkalog.server.broker import Broker\n"
        "root = logging.getLogger()\n"
        "with Broker(sys.argv[1]): pass\n"
        "print(root.handlers, root.level, logging.getLogger('kafkalog').handlers)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "d")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "[] 30 []\n"
    assert done.stderr == ""


def test_a_broker_logs_changes_of_topics(raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkalog.server")
    raw.create("t", 2)
    raw.alter(2, "t", retention_ms="1000")
    raw.alter(2, "t", retention_ms=None)
    raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000)
    assert [line for line in caplog.messages if line.startswith("topic t")] == [
        "topic t: created with 2 partitions",
        "topic t: retention.ms is 1000",
        "topic t: retention.ms is its default",
        "topic t: deleted",
    ]


def test_requests_that_are_not_served_do_not_fill_the_log(
    raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kafkalog"):
        for _ in range(LINES_MAX + 10):
            again = Raw(raw.address)
            again.socket.sendall((10).to_bytes(4, "big") + b"\x27\x0f\0\0\0\0\0\1\xff\xff")
            assert again.socket.recv(1) == b""
            again.socket.close()
    found = [one for one in caplog.messages if "is not served" in one]
    assert len(found) == LINES_MAX
