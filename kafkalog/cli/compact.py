"""`kafkalog compact`: of each key only the last record stays."""

import argparse
import time

from kafkalog.cli.common import (
    UsageError,
    add_dir,
    count_argument,
    find_partitions,
    json_line,
    settings_of,
    show_bytes,
    table,
)

EXAMPLES = """\
example:
  kafkalog compact --dir data --topic accounts
  kafkalog compact --dir data --topic accounts --roll --set delete.retention.ms=0
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_dir(parser)
    parser.add_argument("--partition", type=int, metavar="N", help="only this one")
    parser.add_argument(
        "--roll",
        action="store_true",
        help="seal the active segment first, so that its records take part, too",
    )
    parser.add_argument(
        "--memory",
        type=count_argument,
        default=128,
        metavar="MIB",
        help="for keys, 24 bytes each; more keys than fit take more rounds (default 128)",
    )
    parser.add_argument(
        "--max-bytes-per-second",
        type=count_argument,
        metavar="N",
        help="read and write no faster (default: no limit)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topic setting (docs/settings.md) for this run, such as delete.retention.ms=0",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")


def run(options: argparse.Namespace) -> int:
    """Compact each partition and tell what became of it.  Records without a key go."""
    from kafkalog.clock import SystemClock
    from kafkalog.disk.layout import holds_segments
    from kafkalog.log.compaction import Limits, Throttle
    from kafkalog.log.log import Log

    settings = {"cleanup.policy": "compact", **settings_of(options.set)}
    if "compact" not in settings["cleanup.policy"].split(","):
        raise UsageError("--set cleanup.policy: wanted one with compact")
    rate = options.max_bytes_per_second
    throttle = Throttle(rate, SystemClock()) if rate else None
    limits = Limits(options.memory << 20, throttle=throttle)
    rows = []
    for tp, path in find_partitions(options.dir, options.topic, options.partition).items():
        if not holds_segments(path):
            continue
        begun = time.monotonic()
        with Log(path, config=settings, topic=tp.topic, partition=tp.partition) as log:
            if options.roll:
                log.roll()
            done = log.compact(limits)
        seconds = time.monotonic() - begun
        if options.json:
            told = {"topic": tp.topic, "partition": tp.partition, **done._asdict()}
            print(json_line({**told, "seconds": round(seconds, 3)}), flush=True)
            continue
        rows.append(
            [
                str(tp.partition),
                f"{done.records_before:,}",
                f"{done.records_after:,}",
                show_bytes(done.bytes_before),
                show_bytes(done.bytes_after),
                f"{done.segments_before:,}",
                f"{done.segments_after:,}",
                str(done.rounds),
                f"{seconds:.2f}",
            ]
        )
    if rows:
        heads = ["partition", "records", "left", "size", "left", "segments", "left", "rounds", "s"]
        print(table(heads, rows))
    return 0
