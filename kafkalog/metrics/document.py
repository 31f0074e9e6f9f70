"""docs/metrics.md, rendered from the table."""

from __future__ import annotations

from kafkalog.metrics.kafka import documented
from kafkalog.metrics.metric import OTHERS, Metric
from kafkalog.metrics.table import PARTS

__all__ = ["render_tables"]

HEADS = "| name | kind | labels | unit | meaning | when it is bad |"


def render_tables() -> str:
    """The tables of metrics, and those of Kafka's."""
    lines: list[str] = []
    for heading, metrics in PARTS:
        lines += [f"### {heading}", "", HEADS, "| --- " * 6 + "|", *map(_row, metrics), ""]
    lines += [
        "## Kafka's metrics",
        "",
        "Each metric that Apache Kafka 4.4 documents for brokers and controllers: its name here,",
        "or why it is not here.",
        "",
        "| Kafka's | here |",
        "| --- | --- |",
        *(f"| `{bean.replace('|', chr(92) + '|')}` | {f'`{name}`' if name else why} |"
          for bean, name, why in documented()),
    ]  # fmt: skip
    return "\n".join(lines).replace(OTHERS, f"`{OTHERS}`") + "\n"


def _row(one: Metric) -> str:
    labels = ", ".join(one.labels) or "-"
    return (f"| `{one.name}` | {one.kind.value} | {labels} | {one.unit or '-'} | {one.text} |"
            f" {one.remedy or '-'} |")  # fmt: skip
