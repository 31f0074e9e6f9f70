"""python -m tests.kafka.suites [--side kafkalog|kafka] [--only TEST] [NAME ...]"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.kafka.clients.servers import SIDES
from tests.kafka.suites import apache_kafka, exporters, golang, librdkafka, python, security
from tests.kafka.suites.suite import Place, Suite, judged
from tests.support import apache, secured
from tests.unit.net.network import wait_for

SUITES = {
    suite.name: suite
    for suite in (
        golang.FRANZ_GO,
        golang.KAFKA_GO,
        python.SUITE,
        librdkafka.SUITE,
        exporters.KAFKA_EXPORTER,
        exporters.KMINION,
        exporters.BURROW,
        apache_kafka.SUITE,
    )
}


def _prepared(suite: Suite) -> Path:
    """The suite's folder, built at first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkalog"
    folder = cache / "suites" / f"{suite.name}-{suite.version}"
    if not (folder / "prepared").exists():
        print(f"{suite.name} {suite.version}: fetching and building", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        suite.prepare(folder)
        (folder / "prepared").touch()
    return folder


def _run(suite: Suite, side: str, only: str | None) -> bool:
    """Run tests; True if there were any, with known failures only."""
    folder = _prepared(suite)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafkalog-suite-") as work:
        files = secured.papers(Path(work))
        port = suite.port or apache.free_port()
        at = security.addresses(suite, port)
        settings = security.settings(suite, at, files)
        with SIDES[side](Path(work) / "data", settings, port=port) as server:
            wait_for(server.answers, f"an answer of {side}")
            security.add_users(suite, server.bootstrap)
            place = Place(server.bootstrap, at, files.authority, files.client, side)
            found = judged(suite, suite.run(folder, place, only))
    took_s = time.monotonic() - begun_s
    ran = found.passed + len(found.failed) + len(found.unexpected)
    print(
        f"{suite.name} {suite.version} on {side}: {found.passed} of {ran} passed, "
        f"{found.skipped} skipped, {took_s:.0f} s"
    )
    for name in found.failed:
        print(f"  as known      {name}: {suite.excused[name]}")
    for name in found.better:
        print(f"  passes now    {name}: remove it from the list")
    for name in found.unexpected:
        print(f"  FAILED        {name}: see {folder}")
    sys.stdout.flush()
    return ran > 0 and not found.unexpected


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.suites")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUITES))
    parser.add_argument("--side", choices=sorted(SIDES), default="kafkalog")
    parser.add_argument("--only", metavar="TEST", help="one test, by the suite's name for it")
    options = parser.parse_args()
    unknown = set(options.names) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    fine = [_run(SUITES[name], options.side, options.only) for name in options.names or SUITES]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
