"""`kafkalog verify`: checks every byte that can be checked."""

import argparse
import time

from kafkalog.cli.checking import checked
from kafkalog.cli.common import json_line, show_bytes

EXAMPLES = """\
example:
  kafkalog verify data --deep
  kafkalog verify data/access-0/00000000000000000000.log --json
"""

COUNTERS = ("partitions", "segments", "batches", "records", "index_entries", "snapshots")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "path",
        nargs="+",
        help="a data directory, a partition's folder or one file; nothing is written",
    )
    parser.add_argument(
        "--deep", action="store_true", help="also decompress each batch and check its records"
    )
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.add_argument("--notes", action="store_true", help="also print notes that are no damage")


def run(options: argparse.Namespace) -> int:
    """Print the report; returns 0 if there is no damage."""
    from kafkalog.report import KINDS

    start = time.monotonic()
    report = checked(options.path, options.deep)
    if options.json:
        print(json_line(report.as_dict()))
        return 0 if report.clean else 1
    for finding in report.findings:
        if finding.severity == "note" and not options.notes:
            continue
        place = finding.file
        place += f" at {finding.position}" if finding.position >= 0 else ""
        place += f" (offset {finding.offset})" if finding.offset >= 0 else ""
        print(f"{finding.severity}: {place}: {finding.what}: {KINDS[finding.what][1]}")
        print(f"    found {finding.found}; wanted {finding.wanted}")
    counters = report.counters
    parts = [f"{counters[name]:,} {name.replace('_', ' ')}" for name in COUNTERS]
    seconds = time.monotonic() - start
    print(f"{', '.join(parts)}, {show_bytes(counters['bytes'])} in {seconds:.2f} s")
    severities = ("damage", "unchecked", "warning", "note")
    more = [f"{counters[name]} {name}" for name in severities if counters[name]]
    print(("clean" if report.clean else "NOT CLEAN") + (f": {', '.join(more)}" if more else ""))
    return 0 if report.clean else 1
