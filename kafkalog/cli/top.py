"""`kafkalog top`: a cluster as it changes, on the terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

from kafkalog.cli.common import UsageError
from kafkalog.cli.remote import add_bootstrap, open_admin

__all__ = ["EXAMPLES", "add_interval", "arguments", "run", "watch"]

EXAMPLES = """\
example:
  kafkalog top --bootstrap-server localhost:9092
  kafkalog top --once --bootstrap-server localhost:9092
  kafkalog top --json --pane groups --bootstrap-server localhost:9092
"""
NAMES = ("nodes", "topics", "groups", "transactions")
INTERVAL_MS, INTERVAL_LOW_MS, INTERVAL_HIGH_MS = 2_000, 200, 3_600_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    parser.add_argument(
        "--pane", choices=NAMES,
        help="the table to begin with (default topics); with --once or --json the only one",
    )  # fmt: skip
    add_interval(parser)
    parser.add_argument(
        "--once", action="store_true",
        help="print tables once, and exit; so it does if the output is no terminal",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as --once, one JSON object per line")


def add_interval(parser: argparse.ArgumentParser) -> None:
    """The option for how often a cluster is asked."""
    parser.add_argument(
        "--interval-ms", type=int, default=INTERVAL_MS, metavar="MS",
        help=f"how long from one look to the next (default {INTERVAL_MS})",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Show it until the user ends it, or once."""
    once = options.once or options.json
    if once and options.pane:
        return watch(options, [options.pane], once=True)
    return watch(options, NAMES, once=once, first=options.pane or "topics")


def live() -> bool:
    """True if the terminal can show the live view."""
    ends = sys.stdin, sys.stdout, sys.stderr  # textual draws on the last one
    return os.environ.get("TERM") not in (None, "dumb") and all(one.isatty() for one in ends)


def watch(
    options: argparse.Namespace, names: Sequence[str], groups: Collection[str] = (),
    kinds: Collection[str] = (), *, once: bool = False, first: str = "", partitions: bool = False,
) -> int:  # fmt: skip
    """Show the tables of these names, beginning with `first`.

    `groups`, `kinds`: only these groups, of these types; empty: all.  `partitions`: of the groups,
    too.

    Raises: CommandError, MissingPackage, UsageError.
    """
    if not INTERVAL_LOW_MS <= options.interval_ms <= INTERVAL_HIGH_MS:
        raise UsageError(
            f"--interval-ms: found {options.interval_ms}, wanted {INTERVAL_LOW_MS} to "
            f"{INTERVAL_HIGH_MS}"
        )
    from kafkalog.cli.live.plain import show_once
    from kafkalog.cli.live.watch import Scope, Watch

    app = None if once or not live() else _app()
    with open_admin(options) as admin:
        watching = Watch(admin, Scope(frozenset(groups), frozenset(kinds)))
        view = watching.first()
        if app is not None:
            (detail,) = groups if partitions and len(groups) == 1 else ("",)
            interval_ms = options.interval_ms
            shown = app.LiveView(watching, view, names, interval_ms, first=first, detail=detail)
            return int(app.show_live(shown, watching))
        time.sleep(options.interval_ms / 1000)  # rates are between two looks
        lags = watching.lags if partitions else None
        show_once(watching.step(), names, options.json, lags)
    return 0


def _app() -> Any:
    """The module of the live view.  Raises: MissingPackage."""
    from kafkalog.errors import MissingPackage

    try:
        import textual  # noqa: F401
    except ImportError:
        raise MissingPackage(
            'the live view needs textual: pip install "kafkalog[top]"; kafkalog top --once does not'
        ) from None
    from kafkalog.cli.live import app

    return app
