"""Turns the JSON of a run into docs/performance.md, its pictures and the README's table.

`python -m benchmarks.report RUN.json ...`, where a RUN.json is what
`pytest benchmarks --benchmark-only --benchmark-json RUN.json` wrote, or the results.json that
this wrote before: if a row is in several, the last one counts, so that one area can be measured
again.  Everything is rendered from docs/performance/results.json, which is written first.
With --dry-run it is rendered, and nothing is written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from benchmarks.chart import draw
from benchmarks.measure import Row, Verdict, amount, times, verdicts

__all__ = ["RESULTS", "Results", "main", "rendered"]

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
DOCUMENT, FOLDER = DOCS / "performance.md", DOCS / "performance"
README = HERE.parent / "README.md"
RESULTS = FOLDER / "results.json"
NOTES = HERE / "notes.md"
AREAS = {
    "append": "Appends",
    "durable": "Durable appends",
    "scan": "Scans",
    "columns": "Columns for data frames",
    "iterate": "Records as objects",
    "lookup": "Lookups",
    "open": "Opening",
    "partitions": "Many partitions",
    "send": "Into a socket",
    "compaction": "Compaction",
    "readers": "Readers next to a writer",
    "spark": "Spark",
    "wire": "The wire codec",
    "produce": "Broker: produce",
    "consume": "Broker: consume",
    "latency": "Broker: one at a time",
    "first": "Broker: the first record of a topic",
    "safe": "Broker: durable acknowledgements",
    "spread": "Broker: many partitions",
    "group": "Broker: groups",
    "life": "Broker: start and memory",
    "security": "Broker: TLS, logins and ACLs",
    "cluster": "Cluster: three nodes, three copies",
    "quorum": "Quorum: three nodes without ZooKeeper",
    "console": "The console",
}
"""Titles by the first word of a row's key, in the order of the document."""
INTRODUCTION = """\
# Performance

Rendered from `docs/performance/results.json` by `make docs`; do not edit.

Each figure is a median of rounds in which all sides of a row took turns, so that a slow spell of
the machine met all of them; next to it are the slowest and the fastest round.  A ratio is one of
medians, with the spread of the rounds.  **Missed** marks a target that was not reached.

Compare only figures of one run (the last column, [below](#how-it-was-measured)): another machine
may be twice as fast.
"""
METHOD = """\
## How it was measured

Rivals are set up for the same safety on return as kafkalog, and no more.

A JVM becomes two to three times as fast in its first minute under load.  So where one takes part,
each side is warmed by its own load before any round counts, until two rounds in a row differ by
less than 5 % or 90 s are over; the column *warm-up* says how long that took, and "not steady"
where the 90 s came first.  Every other row has one round of each side that does not count.  Work
that is done once, such as a start, is not warmed, which its row's method below says in words.
A table without that column was measured before this rule, next to a JVM that had just started or
had run for one round: its factors are too high for a JVM that runs for long.
Before a round that writes, the memory for it is touched, and what earlier rounds wrote is on
disk, on all sides; each side gets a fresh topic in each round, or each keeps its own for all.

A run's row names the
commit, and its command the files of `benchmarks/`, which say what each side does.  `make bench`
runs all of them; `make bench PARTS="log rivals_append"` runs some;
`python -m benchmarks.report docs/performance/results.json build/bench.json` puts the new figures
into this page, its pictures and the README.
"""
SHORT = "## Where it falls short, and why\n"
NOWHERE = "scale", "command"
"""Facts of a run that are not in the tables of machines."""


class Results(NamedTuple):
    """The rows of one or more runs."""

    runs: list[dict[str, str]]
    """Where each took place, by the names of environment.py."""
    rows: dict[str, tuple[Row, int]]
    """By key, with the index of the run."""


def merge(files: Sequence[dict[str, Any]]) -> Results:
    """The rows of all files; the last one of each key."""
    runs: list[dict[str, str]] = []
    rows: dict[str, tuple[Row, int]] = {}
    for content in files:
        first = len(runs)
        if "rows" in content:  # results.json
            runs += content["runs"]
            for fields in content["rows"]:
                row = dict(fields)
                run = row.pop("run")
                rows[row["key"]] = (Row.from_dict(row), first + run)
            continue
        runs.append(content["environment"])
        for benchmark in content["benchmarks"]:
            extra = benchmark["extra_info"]
            for fields in extra.get("rows") or ([extra["row"]] if "row" in extra else []):
                rows[fields["key"]] = (Row.from_dict(fields), first)
    return _used(Results(runs, rows))


def _used(results: Results) -> Results:
    """Without runs that have no rows."""
    kept = sorted({run for _, run in results.rows.values()})
    rows = {key: (row, kept.index(run)) for key, (row, run) in results.rows.items()}
    return Results([results.runs[run] for run in kept], rows)


def as_json(results: Results) -> str:
    """The text of results.json: figures to five digits."""
    rows = []
    for row, run in results.rows.values():
        sides = {name: [float(f"{v:.5g}") for v in vs] for name, vs in row.sides.items()}
        rows.append({**row.as_dict(), "sides": sides, "load": round(row.load, 1), "run": run})
    content = {"runs": results.runs, "rows": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def areas(results: Results) -> Iterator[tuple[str, str, list[Row]]]:
    """Word, title and rows of each area that has rows."""
    words = dict.fromkeys([*AREAS, *(key.partition("-")[0] for key in results.rows)])
    for word in words:
        rows = [row for key, (row, _) in results.rows.items() if key.partition("-")[0] == word]
        if rows:
            rows.sort(key=lambda row: len(row.sides) == 1)  # those without a rival come last
            yield word, AREAS.get(word, word.capitalize()), rows


def rendered(results: Results | None = None) -> Iterator[tuple[Path, str]]:
    """The document, its pictures and the README, as rendered from the results, or from
    results.json; nothing without it."""
    if results is None:
        if not RESULTS.exists():
            return
        results = _read([str(RESULTS)])
    for word, title, rows in areas(results):
        if beside := _with_rivals(rows):
            yield FOLDER / f"{word}.svg", draw(title, beside)
    yield DOCUMENT, document(results)
    yield README, front(README.read_text(encoding="utf-8"), results)


def _with_rivals(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if len(row.sides) > 1]


def document(results: Results) -> str:
    """The text of performance.md."""
    parts = [INTRODUCTION]
    about = []
    for word, title, rows in areas(results):
        parts.append(f"## {title}\n")
        parts.append(_table(results, rows))
        if _with_rivals(rows):
            parts.append(f"![{title}: medians of all sides](performance/{word}.svg)\n")
        words = dict.fromkeys(text for row in rows for text in (row.about, row.cold) if text)
        about.append(fill(f"**{title}.** {' '.join(words)}", 100, break_on_hyphens=False) + "\n")
    parts += [SHORT, NOTES.read_text(encoding="utf-8"), METHOD, _runs(results), *about]
    return "\n".join(parts)


def _table(results: Results, rows: Sequence[Row]) -> str:
    """All sides of the rows; a row's first side is what the others are compared with."""
    titles = ["work", "side", "median", "slowest to fastest", "the first is", "wanted", "run"]
    warm = any(row.warmed or row.cold for row in rows)
    if warm:
        titles.insert(4, "warm-up")
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for row in rows:
        work, run, first = row.work, str(results.rows[row.key][1] + 1), next(iter(row.sides))
        wanted: dict[str, list[str]] = {}
        for verdict in verdicts(row):  # a ratio is shown at its rival
            wanted.setdefault(verdict.want.than or verdict.want.of, []).append(
                _wanted(verdict, row)
            )
        for name, values in row.sides.items():
            ends = (min, max) if row.more_is_better else (max, min)
            spread = " to ".join(amount(end(values), row.unit) for end in ends)
            against = "" if name == first else times(row.ratio(first, name))
            cells = [work, name, amount(row.median(name), row.unit), spread, against,
                     "; ".join(wanted.get(name, [])), run]  # fmt: skip
            if warm:
                cells.insert(4, _warm_up(row, name))
            lines.append(f"| {' | '.join(cells)} |")
            work = run = ""
    return "\n".join(lines) + "\n"


def _warm_up(row: Row, side: str) -> str:
    """How a side was warmed, in short."""
    return "none" if row.cold else str(row.warmed.get(side, "1 round"))


def _wanted(verdict: Verdict, row: Row) -> str:
    """A target in short, and whether it was reached; a side that is not the first is named."""
    want, first = verdict.want, next(iter(row.sides))
    text = verdict.wanted.removeprefix(f"{want.of} ")
    if want.than:
        text = text.removesuffix(f" {want.than}")
    if want.than and want.of != first:
        text = f"{want.of} {text}, found {verdict.found}"
    return text if verdict.reached else f"{text}: **missed**"


def _runs(results: Results) -> str:
    """Where the runs took place: what all share, and a row for each with the rest."""
    runs = results.runs
    facts = dict.fromkeys(name for run in runs for name in run if name not in NOWHERE)
    shared = [name for name in facts if len({run.get(name) for run in runs}) == 1]
    rest = [name for name in facts if name not in shared]
    lines = ["| in all runs | |", "| --- | --- |"]
    lines += [f"| {name} | {runs[0].get(name, '')} |" for name in shared]
    lines += ["", f"| run | {' | '.join(rest)} | load before a row | files of benchmarks/ |"]
    lines.append("| --- " * (len(rest) + 3) + "|")
    for number, run in enumerate(runs):
        loads = [row.load for row, where in results.rows.values() if where == number]
        files = ", ".join(re.findall(r"(test_\w+)\.py", run["command"]))
        cells = [str(number + 1), *(run.get(name, "") for name in rest)]
        lines.append(f"| {' | '.join(cells)} | {min(loads):.1f} to {max(loads):.1f} | {files} |")
    options = "--benchmark-only --benchmark-columns=median --benchmark-json=build/bench.json"
    lines += ["", f"Command: `python -m pytest benchmarks/FILE.py {options}`.", ""]
    if any(float(run["scale"]) < 1 for run in runs):
        lines.append("**Some runs are trials at less than full size: their figures mean nothing.**")
    return "\n".join(lines)


FIGURES = re.compile(
    r"^\| (?P<work>.+) <!-- (?P<key>[\w-]+): (?P<sides>.+) --> \|.*$", re.MULTILINE
)


def front(text: str, results: Results) -> str:
    """A text with the figures in its tables taken from the results.

    The first cell of such a row ends in `<!-- append-one: kafkalog; -; SQLite -->`: the key, and
    the beginning of the name of the side that each further cell shows; `-`: none.  A figure that
    misses a target says so.
    """

    def figure(row: Row, side: str) -> str:
        missed = [one for one in verdicts(row) if one.want.of == side and not one.reached]
        said = "; ".join(one.wanted.removeprefix(f"{side} ") for one in missed)
        text = amount(row.median(side), row.unit)
        return f"{text} (**missed** {said})" if missed else text

    def row(found: re.Match[str]) -> str:
        wanted, _ = results.rows[found["key"]]
        cells = [f"{found['work']} <!-- {found['key']}: {found['sides']} -->"]
        for side in found["sides"].split("; "):
            names = [name for name in wanted.sides if name.startswith(side)]
            names.sort(key=len)  # an exact name before longer ones
            cells.append(figure(wanted, names[0]) if side != "-" else "")
        return f"| {' | '.join(cells)} |"

    return FIGURES.sub(row, text)


def _read(names: Sequence[str]) -> Results:
    return merge([json.loads(Path(name).read_text(encoding="utf-8")) for name in names])


def main(names: Sequence[str]) -> int:
    """Write results.json from the given files, then everything that is rendered from it."""
    dry = "--dry-run" in names
    names = [name for name in names if name != "--dry-run"]
    if not names:
        print("usage: python -m benchmarks.report [--dry-run] RUN.json ...", file=sys.stderr)
        return 2
    results = _read(names)
    if dry:
        for path, content in rendered(results):
            print(f"{path.relative_to(HERE.parent)}: {len(content)} characters, not written")
        return 0
    FOLDER.mkdir(exist_ok=True)
    RESULTS.write_text(as_json(results), encoding="utf-8")
    for path in FOLDER.glob("*.svg"):
        path.unlink()
    for path, content in rendered():
        path.write_text(content, encoding="utf-8")
        print(path.relative_to(HERE.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
