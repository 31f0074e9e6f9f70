"""A process that has kafkalog loaded and forks a worker for each order it gets.

A fresh interpreter takes a tenth of a second, a fork a millisecond: the difference between a few
and many hundred kills in a test.  The zygote itself opens no log and has no second thread.
`python -m tests.damage.crash.zygote FD [MODULE...]` serves orders on that socket, with those
modules loaded, too.
"""

import array
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[3]
ORDER_BYTES = 1 << 16
LOADED = (  # modules that each worker would otherwise import at first use
    "kafkalog.directory.manager", "kafkalog.log.scan.scan", "kafkalog.inspect.verify.files",
    "cramjam", "lz4.frame", "numpy", "zstandard",
)  # fmt: skip


def serve(orders: socket.socket, more: list[str]) -> None:
    """Fork a worker per order until the other end closes.  The last one is reaped late, so that its
    pid is not reused while the parent may still signal it."""
    from tests.damage.crash import work

    for name in (*LOADED, *more):
        importlib.import_module(name)
    last_pid = 0
    while True:
        data, ancillary, _, _ = orders.recvmsg(ORDER_BYTES, socket.CMSG_SPACE(4))
        if last_pid:
            os.waitpid(last_pid, 0)
        if not data:
            return
        (report_fd,) = array.array("i", ancillary[0][2])
        order = json.loads(data)
        module, colon, _ = order["work"].rpartition(":")
        if colon:  # import it here, not in each worker
            importlib.import_module(module)
        last_pid = os.fork()
        if last_pid == 0:
            orders.close()
            _work(work.WORKS, order, report_fd)
        os.close(report_fd)
        orders.send(str(last_pid).encode())


def _work(works: dict[str, Any], order: dict[str, Any], report_fd: int) -> None:
    """The worker's whole life; never returns."""

    def report(*words: Any) -> None:
        line = json.dumps(words).encode() + b"\n"
        while line:
            line = line[os.write(report_fd, line) :]

    try:
        module, colon, name = order.pop("work").rpartition(":")
        work = getattr(importlib.import_module(module), name) if colon else works[name]
        work(report, **order)
        report("done")
    except BaseException:
        report("failed", traceback.format_exc())
    finally:
        os._exit(0)


class Worker:
    """A forked worker and its reports."""

    def __init__(self, pid: int, report_fd: int) -> None:
        self.pid = pid
        self._reports = os.fdopen(report_fd, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def reports(self) -> Iterator[list[Any]]:
        """Every complete report until the worker has ended; a cut last line is dropped.

        A worker that failed raises AssertionError with its traceback here.
        """
        with self._reports:
            for line in self._reports:
                if not line.endswith(b"\n"):
                    return
                words = json.loads(line)
                assert words[0] != "failed", words[1]
                yield words


class Zygote:
    """The parent's side; a context manager."""

    def __init__(self, *more: str) -> None:
        """`more`: modules that its workers find loaded."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        command = [sys.executable, "-m", "tests.damage.crash.zygote", str(fd), *more]
        self._process = subprocess.Popen(command, pass_fds=[fd], cwd=ROOT)
        theirs.close()

    def start(self, work: str, **order: Any) -> Worker:
        """Fork a worker that runs `tests.damage.crash.work.WORKS[work]`, or `module:function`, with
        the other arguments."""
        mine, theirs = os.pipe()
        message = json.dumps({"work": work, **order}).encode()
        socket.send_fds(self._orders, [message], [theirs])
        os.close(theirs)
        return Worker(int(self._orders.recv(64)), mine)

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._orders.close()
        self._process.wait(timeout=LIMIT_S)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
