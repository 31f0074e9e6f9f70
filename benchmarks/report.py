"""From the JSON of a run to docs/performance.md and its pictures.

`python -m benchmarks.report RUN.json ...`, where a RUN.json is what
`pytest benchmarks --benchmark-only --benchmark-json RUN.json` wrote, or the results.json that
this wrote before: if a row is in several, the last one counts, so that one area can be measured
again.  Everything is rendered from docs/performance/results.json, which is written first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chart import draw
from benchmarks.measure import Row, amount, times, verdicts

__all__ = ["RESULTS", "Results", "main", "rendered"]

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
DOCUMENT, FOLDER = DOCS / "performance.md", DOCS / "performance"
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
    "readers": "Readers beside a writer",
    "spark": "Spark",
    "wire": "The wire codec",
    "produce": "Broker: produce",
    "consume": "Broker: consume",
    "latency": "Broker: one at a time",
    "safe": "Broker: durable acknowledgements",
    "spread": "Broker: many partitions",
    "group": "Broker: groups",
    "life": "Broker: start and memory",
    "cluster": "Cluster: three nodes, three copies",
}
"""Titles by the first word of a row's key, in the order of the document."""
INTRODUCTION = """\
# Performance

Every figure below is a median of rounds in which all sides of a row took turns, so that a slow
spell of the machine met all of them; in brackets, or next to it, are the slowest and the fastest
round.  A ratio is one of medians; its spread is that of the rounds.  Rivals are set up for the
same safety on return as kafkalog, and no more.  Nobody's figures but those of one run are
compared: on another machine measure again.

`make bench` prints the table; `python -m benchmarks.report build/bench.json` renders this
document and its pictures from what that run wrote.
"""


class Results(NamedTuple):
    """The rows of one or more runs."""

    runs: list[dict[str, str]]
    """Where each took place, by the names of environment.py."""
    rows: dict[str, tuple[Row, int]]
    """By key, with the index of the run."""


def merge(files: Sequence[dict[str, Any]]) -> Results:
    """The rows of all files; of those with one key the last."""
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
    """Without the runs that no row is left of."""
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


def notes() -> dict[str, str]:
    """The sections of notes.md by the key that is their heading."""
    if not NOTES.exists():
        return {}
    _, *sections = ("\n" + NOTES.read_text(encoding="utf-8")).split("\n## ")
    pairs = (section.partition("\n") for section in sections)
    return {key.strip(): text.strip() for key, _, text in pairs}


def rendered() -> Iterator[tuple[Path, str]]:
    """The document and its pictures, as they follow from results.json; none without it."""
    if not RESULTS.exists():
        return
    results = merge([json.loads(RESULTS.read_text(encoding="utf-8"))])
    for word, title, rows in areas(results):
        if beside := _with_rivals(rows):
            yield FOLDER / f"{word}.svg", draw(title, beside)
    yield DOCUMENT, document(results)


def _with_rivals(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if len(row.sides) > 1]


def document(results: Results) -> str:
    """The text of performance.md."""
    explained = notes()
    parts = [INTRODUCTION, _environment(results), _summary(results)]
    for word, title, rows in areas(results):
        parts.append(f"## {title}\n")
        if _with_rivals(rows):
            parts.append(f"![{title}: medians of all sides](performance/{word}.svg)\n")
        about = dict.fromkeys(row.about for row in rows if row.about)
        parts += [text + "\n" for text in about]
        parts += [_row(row, explained.get(row.key, "")) for row in rows]
    return "\n".join(parts)


def _environment(results: Results) -> str:
    lines = ["## Where\n"]
    for number, run in enumerate(results.runs):
        if len(results.runs) > 1:
            keys = [f"`{key}`" for key, (_, where) in results.rows.items() if where == number]
            lines.append(f"Run {number + 1}, for {', '.join(keys)}:\n")
        lines += ["| | |", "| --- | --- |"]
        lines += [f"| {name} | {fact} |" for name, fact in run.items() if name != "scale"]
        loads = [row.load for row, where in results.rows.values() if where == number]
        lines.append(f"| load before a row | {min(loads):.1f} to {max(loads):.1f} |\n")
        if float(run["scale"]) < 1:
            lines.append(f"**A trial at {run['scale']} of full size: its figures mean nothing.**\n")
    return "\n".join(lines)


def _summary(results: Results) -> str:
    lines = ["## Wanted and found\n", "| work | wanted | found | |", "| --- | --- | --- | --- |"]
    for _, _, rows in areas(results):
        for row in rows:
            lines += [
                f"| {row.work} | {verdict.wanted} | {verdict.found} | {_mark(verdict.reached)} |"
                for verdict in verdicts(row)
            ]
    return "\n".join(lines) + "\n"


def _mark(reached: bool) -> str:
    return "reached" if reached else "**missed**"


def _row(row: Row, note: str) -> str:
    first = next(iter(row.sides))
    lines = [
        f"### {row.work}\n",
        f"| | median | slowest to fastest | {first} is |",
        "| --- | --- | --- | --- |",
    ]
    for name, values in row.sides.items():
        slowest, fastest = (f(values) for f in ((min, max) if row.more_is_better else (max, min)))
        spread = f"{amount(slowest, row.unit)} to {amount(fastest, row.unit)}"
        against = "" if name == first else f"{times(row.ratio(first, name))}"
        lines.append(f"| {name} | {amount(row.median(name), row.unit)} | {spread} | {against} |")
    lines.append("")
    for verdict in verdicts(row):
        lines.append(f"- {_mark(verdict.reached)}: {verdict.wanted}; found {verdict.found}")
    if row.wants:
        lines.append("")
    if note:
        lines.append(note + "\n")
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    """Write results.json from the given files, then all that follows from it."""
    if not names:
        print("usage: python -m benchmarks.report RUN.json ...", file=sys.stderr)
        return 2
    results = merge([json.loads(Path(name).read_text(encoding="utf-8")) for name in names])
    FOLDER.mkdir(exist_ok=True)
    RESULTS.write_text(as_json(results), encoding="utf-8")
    for path in FOLDER.glob("*.svg"):
        path.unlink()
    for path, content in rendered():
        path.write_text(content, encoding="utf-8")
        print(path.relative_to(HERE.parent))
    explained = notes()
    for row, _ in results.rows.values():
        missed = [verdict for verdict in verdicts(row) if not verdict.reached]
        if missed and row.key not in explained:
            print(f"missed without a word in benchmarks/notes.md: {row.key}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
