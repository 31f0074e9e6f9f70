"""`kafkalog man`: manual pages, from the same parsers as --help."""

import argparse
import sys
from pathlib import Path

from kafkalog.cli.common import UsageError, warn

EXAMPLES = """\
example:
  kafkalog man serve
  kafkalog man --dir ~/.local/share/man/man1
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("command", nargs="?", help="the command (default: the overview)")
    parser.add_argument("--dir", help="write all pages into this folder, which is made")


def run(options: argparse.Namespace) -> int:
    """Print a page, or write all."""
    from kafkalog.cli.documents import manual_pages

    pages = dict(manual_pages())
    if options.dir is not None:
        if options.command is not None:
            raise UsageError(f"man: found {options.command!r} and --dir, wanted one of them")
        folder = Path(options.dir)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (folder / f"{name}.1").write_text(text, encoding="utf-8")
        warn(f"{len(pages)} pages in {folder}")
        return 0
    name = "kafkalog" if options.command is None else f"kafkalog-{options.command}"
    if name not in pages:
        raise UsageError(f"man: no command {options.command!r}; see kafkalog --help")
    sys.stdout.write(pages[name])
    return 0
