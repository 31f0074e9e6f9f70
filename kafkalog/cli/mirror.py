"""`kafkalog mirror`: copies topics of one cluster to another, each record once."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from kafkalog.cli.common import CODECS, count_argument, json_line, plural, show_bytes, warn
from kafkalog.cli.progress import INTERVAL_S, on_terminal
from kafkalog.cli.remote import read_config
from kafkalog.cli.signals import default_again, on_signals

if TYPE_CHECKING:
    from kafkalog import MirrorStatus

NAMES_MAX = 10
"""How many names are printed."""
EXAMPLES = """\
example:
  kafkalog mirror --from kafka1:9092 --to localhost:9092 --topics 'orders|payments' --once
  kafkalog mirror --from dc1:9092 --to dc2:9092 --topics '.*' --groups '.*' --rename 'dc1.{}'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--from", dest="source", required=True, metavar="HOST:PORT",
        help="a broker of the source cluster, or several with commas",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="target", required=True, metavar="HOST:PORT",
        help="a broker of the target cluster, which also stores the mirror's state",
    )  # fmt: skip
    for side, cluster in (("from", "source"), ("to", "target")):
        parser.add_argument(
            f"--{side}-config", dest=f"{cluster}_config", metavar="FILE",
            help=f"a properties file for clients of the {cluster}, such as security.protocol",
        )  # fmt: skip
    parser.add_argument(
        "--topics", required=True, metavar="PATTERN",
        help="a regular expression for whole topic names; new topics are found, too",
    )  # fmt: skip
    parser.add_argument(
        "--exclude",
        metavar="PATTERN",
        help="a regular expression for whole topic names that are not copied (default: none)",
    )
    parser.add_argument(
        "--target-alias",
        metavar="ALIAS",
        help="MirrorMaker's alias of the target: topics that came from there by their names, "
        "ALIAS.TOPIC or OTHER.ALIAS.TOPIC, are not copied",
    )
    parser.add_argument(
        "--groups",
        metavar="PATTERN",
        help="a regular expression for groups whose offsets are translated (default: none)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="exit when everything readable now is copied (default: go on until stopped)",
    )
    parser.add_argument(
        "--rename", default="{}", metavar="NAME",
        help="the name of a topic's copy; {} stands for the topic's name (default {})",
    )  # fmt: skip
    parser.add_argument(
        "--accept-loss",
        metavar="PATTERN",
        help="a regular expression for topics that are copied on although the source or the "
        "target lost records that were copied, or the topic was recreated (default: none)",
    )
    parser.add_argument(
        "--name",
        help="the mirror's name, under which the target stores its progress; a second mirror "
        "with the same name ends the first (default: the source's cluster id)",
    )
    _tuning(parser)


def _tuning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replication-factor", type=count_argument, default=-1, metavar="N",
        help="for topics that are created (default: the target's)",
    )  # fmt: skip
    parser.add_argument(
        "--compression", choices=CODECS, default="none", help="the codec of the copy's batches"
    )
    parser.add_argument(
        "--transaction-bytes", type=count_argument, default=16 << 20, metavar="BYTES",
        help="how much one transaction copies, about (default 16777216)",
    )  # fmt: skip
    parser.add_argument(
        "--refresh-s", type=count_argument, default=30, metavar="S",
        help="how often to look for topics, settings and groups (default 30)",
    )  # fmt: skip
    parser.add_argument(
        "--report-s", type=count_argument, default=10, metavar="S",
        help="how often to print the progress if stderr is no terminal (default 10)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the totals as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Copy; returns 1 if topics had to be skipped."""
    from kafkalog import Mirror

    view = _View(options.report_s)
    mirror = Mirror(
        options.source,
        options.target,
        options.topics,
        exclude=options.exclude,
        target_alias=options.target_alias,
        groups=options.groups,
        accept_loss=options.accept_loss,
        rename=options.rename,
        name=options.name,
        replication_factor=options.replication_factor,
        compression=options.compression,
        transaction_bytes=options.transaction_bytes,
        refresh_ms=options.refresh_s * 1000,
        on_warning=view.warn,
        on_progress=view.show,
        source_config=read_config(options.source_config, "--from-config"),
        target_config=read_config(options.target_config, "--to-config"),
    )

    # The first signal ends it in order, the second at once.
    with on_signals(lambda _: mirror.stop(), default_again):
        try:
            status = mirror.copy() if options.once else mirror.run()
        finally:
            view.clear()
    if options.json:
        print(json_line(status._asdict()))
        return 1 if status.aside else 0
    print(view.line(status))
    if status.returned:
        names = sorted(status.returned)
        more = ", ..." if len(names) > NAMES_MAX else ""
        print(
            f"{plural(len(names), 'topic')} not copied, as copies that came from the target: "
            f"{', '.join(names[:NAMES_MAX])}{more}"
        )
    return 1 if status.aside else 0


class _View:
    """Shows the progress on a terminal's last line, or as a line at intervals."""

    def __init__(self, report_s: int) -> None:
        self.terminal = on_terminal()
        self.pause_s = INTERVAL_S if self.terminal else report_s
        self.begun_s = time.monotonic()
        self.next_s = self.begun_s + self.pause_s
        self.before = (self.begun_s, 0, 0)
        self.dirty = False

    def line(self, status: "MirrorStatus") -> str:
        """Print the totals."""
        seconds = max(time.monotonic() - self.begun_s, 1e-6)
        return (
            f"{plural(status.records, 'record')} ({show_bytes(status.bytes)}) of "
            f"{plural(status.topics, 'topic')} ({plural(status.partitions, 'partition')}) in "
            f"{seconds:.1f} s: {status.records / seconds:,.0f} records/s; "
            f"{plural(status.groups, 'offset')} of groups; lag {status.lag:,}"
        )

    def show(self, status: "MirrorStatus") -> None:
        """Lag and rate since the last report."""
        now_s = time.monotonic()
        if now_s < self.next_s:
            return
        then_s, records, size = self.before
        seconds = max(now_s - then_s, 1e-6)
        text = (
            f"{plural(status.records, 'record')}, {(status.records - records) / seconds:,.0f}/s, "
            f"{show_bytes((status.bytes - size) / seconds)}/s, lag {status.lag:,}, "
            f"{plural(status.topics, 'topic')}"
        )
        self.next_s = now_s + self.pause_s
        if self.terminal:
            if now_s - then_s >= 1:
                self.before = (now_s, status.records, status.bytes)
            sys.stderr.write(f"\r{text}\x1b[K")
            self.dirty = True
        else:
            self.before = (now_s, status.records, status.bytes)
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def warn(self, text: str) -> None:
        """Print a line."""
        self.clear()
        warn(text)

    def clear(self) -> None:
        """Clear the line for what is printed next."""
        if self.dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.dirty = False
