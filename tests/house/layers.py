"""The layers of the project, in Python and in C, and how docs/architecture.md shows them."""

from __future__ import annotations

import re
from textwrap import fill

__all__ = ["PYTHON", "RANK", "C", "shown"]

# Low to high.  Parts on one line do not import each other.
PYTHON = [
    ["types"],
    ["errors"],
    ["config", "clock", "report", "logs", "system"],
    ["arguments", "pattern"],
    ["serializers", "metrics"],
    ["_native", "_pyinstaller"],
    ["wire"],
    ["batch", "security"],
    ["disk"],
    ["log", "telemetry"],
    ["directory"],
    ["metadata"],
    ["controller"],
    ["raft"],
    ["kraft", "inspect", "coordinator", "client"],
    ["replication", "mirror", "shares", "watch"],
    ["zookeeper", "quorum"],
    ["cluster"],
    ["console"],
    ["server"],
    ["store", "aio"],
    ["collector"],
    ["frames", "pushdown", "opentelemetry"],
    ["polars", "pandas", "arrow"],
    ["__init__"],
    ["testing"],
    ["simulate"],
    # The command line and the plugin use the public names, as every other program does.
    ["cli", "pytest_plugin"],
    ["__main__"],
]
RANK = {part: rank for rank, parts in enumerate(PYTHON) for part in parts}
# Which parts of C a part may use.  No part uses python, except the module's preamble.
C = {
    "base": set[str](),
    "batch": {"base"},
    "segment": {"base", "batch"},
    "log": {"base", "batch", "segment"},
    "scan": {"base", "batch", "segment", "log"},
    "clean": {"base", "batch", "segment", "log"},
    "replica": {"base", "batch", "segment", "log"},
    "net": {"base"},
    "plane": {"base", "batch", "segment", "log", "replica", "net"},
    "server": {"base", "replica", "net", "plane"},
    "python": {"base", "batch", "segment", "log", "scan"},
}

BLOCK = re.compile(r"(?<=<!-- layers: begin -->\n).*?(?=<!-- layers: end -->)", re.DOTALL)


def shown(document: str) -> str:
    """The document with the layers as they are, between its two marks."""
    found, count = BLOCK.subn(lambda _: _python() + "\n" + _c(), document)
    assert count == 1, f"layers: found {count} blocks between marks, wanted one"
    return found


def _python() -> str:
    chain = " < ".join(", ".join(parts) for parts in PYTHON)
    return f"```\n{fill(chain, 98, subsequent_indent='    ')}\n```\n"


def _c() -> str:
    lines = ["| part of C | may include |", "| --- | --- |"]
    for part, known in C.items():
        others = ", ".join(other for other in C if other in known)
        lines.append(f"| {part} | {others or 'nothing'} |")
    return "\n".join(lines) + "\n"
