"""`kafkalog repair`: plans how to repair what verify finds, and does it on request."""

import argparse

from kafkalog.cli.checking import checked
from kafkalog.cli.common import UsageError, agreed, json_line, plural

EXAMPLES = """\
example:
  kafkalog repair data              # shows what would be done
  kafkalog repair data --execute    # does it; what it cuts is kept in .damaged files
"""

ROUNDS = 4  # a round may uncover more for the next one: a cut tail, a snapshot beyond it


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("path", help="a data directory or a partition's folder")
    parser.add_argument(
        "--execute", action="store_true", help="carry it out; without this nothing is written"
    )
    parser.add_argument(
        "--deep", action="store_true", help="check the records first, as verify --deep does"
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="cut records of internal topics (metadata, groups, commits) without asking; "
        "otherwise --execute names each of them and asks",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per action")


def run(options: argparse.Namespace) -> int:
    """Show or execute the plan; returns 0 if nothing is left to repair."""
    from kafkalog.inspect.lost import lost_with
    from kafkalog.inspect.repair import apply, plan

    report = checked([options.path], options.deep)
    actions = plan(report)
    lost: list[str] = []
    for action in actions:
        goes = lost_with(action.file, action.ranges)
        lost += goes
        if options.json:
            row = {"kind": action.kind, "file": action.file, "why": action.why}
            print(json_line({**row, "lost": goes} if goes else row))
        else:
            print(f"{action.kind}: {action.file}\n    {action.why}")
            for line in goes:
                print(f"    goes: {line}")
    work = [action for action in actions if action.kind != "leave"]
    if not options.execute:
        if not options.json:
            print(_summary(len(work), report.clean))
        return 0 if report.clean else 1
    what = plural(len(lost), "record")
    if lost and not options.yes and not agreed(f"{what} of internal topics will be cut."):
        raise UsageError(
            f"{options.path}: {what} of internal topics would be cut, listed above, and with "
            "them topics, settings, groups or commits: nothing was written; add --yes"
        )
    for _ in range(ROUNDS):
        if not work:
            break
        for sentence in apply(work):
            if not options.json:
                print(f"done: {sentence}")
        report = checked([options.path], options.deep)
        work = [action for action in plan(report) if action.kind != "leave"]
    if not options.json:
        print("verify: clean" if report.clean else "verify: NOT CLEAN, see kafkalog verify")
    return 0 if report.clean else 1


def _summary(count: int, clean: bool) -> str:
    if count:
        return f"{plural(count, 'action')}; nothing was written: add --execute"
    return "nothing to do" if clean else "nothing to repair"
