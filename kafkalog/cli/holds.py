"""`kafkalog holds`: what lagging readers hold back from retention."""

import argparse
import os
import time

from kafkalog.cli.common import UsageError, add_dir, json_line, show_bytes, show_time, table

EXAMPLES = """\
example:
  kafkalog holds --dir data                      # shows what is held, and until when
  kafkalog holds --dir data --remove dashboard   # retention no longer waits for it
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_dir(parser, topic=False)
    parser.add_argument("--remove", metavar="NAME", help="end the hold with this name")
    parser.add_argument("--json", action="store_true", help="one JSON object per hold")


def run(options: argparse.Namespace) -> int:
    """Show the current retention holds of a directory, or remove one."""
    from kafkalog.disk.holds import read_holds, remove_hold

    if not os.path.isdir(options.dir):
        raise UsageError(f"{options.dir}: no such directory")
    found = read_holds(options.dir, int(time.time() * 1000))
    if options.remove is not None:
        names = [hold.name for hold in found]
        if options.remove not in names:
            raise UsageError(
                f"--remove: found {options.remove!r}, wanted one of {', '.join(names) or 'none'}"
            )
        remove_hold(options.dir, options.remove)
        print(f"{options.remove}: removed")
        return 0
    if options.json:
        for hold in found:
            row = {"name": hold.name, "until_ms": hold.until_ms, "max_bytes": hold.max_bytes}
            rows = [
                {"topic": tp.topic, "partition": tp.partition, "offset": offset}
                for tp, offset in sorted(hold.offsets.items())
            ]
            print(json_line({**row, "partitions": rows}))
        return 0
    if not found:
        print("no holds: retention follows its settings")
        return 0
    rows_shown = [
        [hold.name, show_time(hold.until_ms), show_bytes(hold.max_bytes),
         ", ".join(sorted({tp.topic for tp in hold.offsets})), f"{len(hold.offsets):,}"]
        for hold in found
    ]  # fmt: skip
    heads = ["name", "until", "of a partition at most", "topics", "partitions"]
    print(table(heads, rows_shown, frozenset((0, 1, 3))))
    return 0
