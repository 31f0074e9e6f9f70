"""Write the documents that are made from code: `make docs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark_kafkalog import document

from kafkalog.cli import documents
from kafkalog.client.link import handling
from kafkalog.config import document as settings
from kafkalog.logs import document as events
from kafkalog.metrics import alarms, dashboard, other_dashboards
from kafkalog.metrics.document import render_tables
from kafkalog.wire import compatibility

HERE = Path(__file__).resolve().parent
sys.path.insert(
    0, str(HERE.parent)
)  # the benchmarks and the tests are no part of the installed package

from benchmarks import report  # noqa: E402
from tests.house import layers  # noqa: E402
from tests.platforms import targets  # noqa: E402


def rendered() -> Iterator[tuple[Path, str]]:
    """Each rendered document and what it should hold."""
    yield HERE / "settings.md", settings.render_markdown()
    yield HERE / "compatibility.md", compatibility.render_markdown() + settings.render_differences()
    yield HERE / "cli.md", documents.render_markdown()
    yield HERE / "spark.md", document.render_markdown()
    architecture = HERE / "architecture.md"
    yield architecture, layers.shown(architecture.read_text(encoding="utf-8"))
    platforms = HERE / "platforms.md"
    yield platforms, between(platforms, "targets", targets.render_markdown())
    failures = HERE / "client-failures.md"
    yield failures, between(failures, "error codes", handling.render_markdown())
    metrics = HERE / "metrics.md"
    yield metrics, between(metrics, "tables", render_tables())
    logs = HERE / "logs.md"
    yield logs, between(logs, "events", events.render_markdown())
    operations = HERE / "operations.md"
    yield operations, between(operations, "alarms", alarms.render_markdown())
    yield HERE / "deploy" / "alerts.yml", alarms.render_rules()
    tools = HERE / "tools.md"
    yield tools, between(tools, "dashboards", other_dashboards.render_dashboards())
    yield HERE / "deploy" / "names.yml", other_dashboards.render_names()
    yield HERE / "deploy" / "dashboard.json", dashboard.render_dashboard()
    yield from report.rendered()


def between(page: Path, name: str, content: str) -> str:
    """The page with this content between the two marks of that name."""
    marks = re.compile(rf"(?<=<!-- {name}: begin -->\n).*?(?=<!-- {name}: end -->)", re.DOTALL)
    found, count = marks.subn(lambda _: content + "\n", page.read_text(encoding="utf-8"))
    assert count == 1, f"{page.name}: found {count} blocks {name}, wanted one"
    return found


def main() -> None:
    """Write those that differ, and say which."""
    for path, content in rendered():
        fresh = path.exists() and path.read_text(encoding="utf-8") == content
        if not fresh:
            path.write_text(content, encoding="utf-8")
        print(f"{path.relative_to(HERE.parent)}: {'as it was' if fresh else 'written'}")


if __name__ == "__main__":
    main()
