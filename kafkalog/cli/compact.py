"""`kafkalog compact`: keeps only the last record of each key."""

import argparse
import math
import time
from typing import TYPE_CHECKING

from kafkalog.cli.checking import bytes_of_logs
from kafkalog.cli.common import (
    UsageError,
    add_dir,
    count_argument,
    find_partitions,
    json_line,
    repeated,
    settings_of,
    show_bytes,
    table,
)
from kafkalog.cli.progress import BytesProgress, on_terminal

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog compact --dir data --topic accounts              # shows what would be done
  kafkalog compact --dir data --topic accounts --execute    # does it
  kafkalog compact --dir data --topic accounts --execute --set cleanup.policy=compact
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_dir(parser)
    parser.add_argument("--partition", type=int, metavar="N", help="only this one")
    parser.add_argument(
        "--execute", action="store_true", help="carry it out; without this nothing is written"
    )
    parser.add_argument(
        "--roll",
        action="store_true",
        help="seal the active segment first, so that its records are compacted, too",
    )
    parser.add_argument(
        "--memory",
        type=count_argument,
        default=128,
        metavar="MIB",
        help="memory for keys, 24 bytes each; if not all fit, it takes more rounds (default 128)",
    )
    parser.add_argument(
        "--max-bytes-per-second",
        type=count_argument,
        metavar="N",
        help="limit reads and writes (default: no limit)",
    )
    repeated(
        parser,
        "--set",
        metavar="NAME=VALUE",
        help="a topic setting (docs/settings.md) for this run, such as delete.retention.ms=0",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")


def run(options: argparse.Namespace) -> int:
    """Show what would be compacted, or compact it and report the result.

    Only for a topic whose cleanup.policy includes compact: records without a key are deleted, and
    all but the last of each key.
    """
    from kafkalog.disk.layout import holds_segments

    settings = settings_of(options.set)
    found = find_partitions(options.dir, options.topic, options.partition)
    _check_policy(options, settings)
    parts = {tp: path for tp, path in found.items() if holds_segments(path)}
    return (_execute if options.execute else _show)(options, settings, parts)


def _check_policy(options: argparse.Namespace, settings: dict[str, str]) -> None:
    """Raises: UsageError if nothing says that the topic is to be compacted."""
    from kafkalog.config.topic import TopicConfig
    from kafkalog.directory.manager import Manager
    from kafkalog.kraft.offline import heed

    with Manager(options.dir, mode="r") as manager:
        heed(manager)
        policy = TopicConfig.of(settings, manager.topic_config(options.topic)).cleanup_policy
        where = "in its metadata" if manager.has_source else "with --set cleanup.policy=compact"
    if "compact" not in policy:
        found = ",".join(policy) or "none"
        raise UsageError(
            f"topic {options.topic}: cleanup.policy: found {found}, wanted one with compact, "
            f"{where}: records without a key would be deleted, and all but the last of each key"
        )


def _show(
    options: argparse.Namespace, settings: dict[str, str], parts: "dict[TopicPartition, str]"
) -> int:
    """Print the work that --execute would do.  Writes nothing."""
    from kafkalog.log.compaction import look
    from kafkalog.log.log import Log, handle_of

    progress = BytesProgress(bytes_of_logs(parts.values()) if on_terminal() else 0)
    rows = []
    for tp, path in parts.items():
        with Log(path, "r", settings, topic=tp.topic, partition=tp.partition) as log:
            end = log.last_stable_offset if options.roll else look(handle_of(log)).end
            records, keyless = _count(log, end, progress)
        progress.clear()
        if options.json:
            row = {"topic": tp.topic, "partition": tp.partition, "end_offset": end}
            print(json_line({**row, "records": records, "without_key": keyless}), flush=True)
            continue
        rows.append([str(tp.partition), str(end), f"{records:,}", f"{keyless:,}"])
    if rows:
        print(table(["partition", "up to offset", "records", "without a key: go"], rows))
        print("nothing is written without --execute")
    return 0


def _count(log: "Log", stop: int, progress: BytesProgress) -> tuple[int, int]:
    """The records below an offset, and how many of them have no key.  The log's bytes are taken to
    be spread evenly over its offsets."""
    from kafkalog.log.isolation import UNCOMMITTED

    first, records, keyless = log.start_offset, 0, 0
    if stop <= first:
        return 0, 0
    size, done_bytes = sum(one.size_bytes for one in log.segments), 0
    for batch in log.scan(first, stop, columns=["key", "offset"], isolation=UNCOMMITTED):
        keys = batch.numpy("key")
        records += len(keys)
        keyless += sum(key is None for key in keys)
        part = (batch.last_offset + 1 - first) / (log.end_offset - first)
        progress.done(int(size * part) - done_bytes)
        done_bytes = int(size * part)
    return records, keyless


def _execute(
    options: argparse.Namespace, settings: dict[str, str], parts: "dict[TopicPartition, str]"
) -> int:
    from kafkalog.clock import SystemClock
    from kafkalog.log.compaction import Limits, Throttle
    from kafkalog.log.log import Log

    progress = BytesProgress(0)  # a round reads some bytes twice: there is no total

    class Watched(Throttle):
        def done(self, count: int) -> None:
            progress.done(count)
            super().done(count)

    rate = options.max_bytes_per_second or math.inf
    limits = Limits(options.memory << 20, throttle=Watched(rate, SystemClock()))
    rows = []
    for tp, path in parts.items():
        start = time.monotonic()
        with Log(path, config=settings, topic=tp.topic, partition=tp.partition) as log:
            if options.roll:
                log.roll()
            done = log.compact(limits)
        progress.clear()
        seconds = time.monotonic() - start
        if options.json:
            row = {"topic": tp.topic, "partition": tp.partition, **done._asdict()}
            print(json_line({**row, "seconds": round(seconds, 3)}), flush=True)
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
