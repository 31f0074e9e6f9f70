"""docs/metrics.md, rendered from the table."""

from __future__ import annotations

import re

from kafkalog.metrics.kafka import documented
from kafkalog.metrics.kafka_undocumented import UNDOCUMENTED
from kafkalog.metrics.metric import OTHERS, Metric
from kafkalog.metrics.table import PARTS

__all__ = ["render_tables"]

NAME = re.compile(r"\bkafka(?:log)?_[a-z_]+(?:\*|\b)")
"""A metric's name, or the beginning of several, in a text."""
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
        "",
        "The MBeans that a broker and a controller have and its documentation does not name:",
        "",
        "| Kafka's | here |",
        "| --- | --- |",
        *(f"| `{bean}` | {NAME.sub('`' + chr(92) + 'g<0>`', text)} |"
          for bean, text in sorted(UNDOCUMENTED)),
    ]  # fmt: skip
    return "\n".join(lines).replace(OTHERS, f"`{OTHERS}`") + "\n"


def _row(one: Metric) -> str:
    labels = ", ".join(one.labels) or "-"
    return (f"| `{one.name}` | {one.kind.value} | {labels} | {one.unit or '-'} | {one.text} |"
            f" {one.remedy or '-'} |")  # fmt: skip
