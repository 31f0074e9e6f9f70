"""The table of events, for docs/logs.md."""

from kafkalog.logs.event import LEFT_OUT, VARIES, Event
from kafkalog.logs.events import EVENTS

__all__ = ["render_markdown"]


def render_markdown() -> str:
    """A row for each event: its name, levels, loggers, fields, and one of its lines."""
    found: dict[str, list[tuple[str, Event]]] = {LEFT_OUT.name: [("all", LEFT_OUT)]}
    for logger, events in EVENTS.items():
        for one in events:
            found.setdefault(one.name, []).append((logger, one))
    rows = ["| event | level | loggers | fields | line |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(found):
        those = found[name]
        levels = _words({one.level if one.level != VARIES else "any" for _, one in those})
        loggers = _words({f"`{logger}`" for logger, _ in those})
        fields = ", ".join(dict.fromkeys(f"`{field}`" for _, one in those for field in one.fields))
        line = those[0][1]
        rows.append(f"| `{name}` | {levels} | {loggers} | {fields} | {_filled(line)} |")
    return "\n".join(rows)


def _words(found: set[str]) -> str:
    return ", ".join(sorted(found))


def _filled(event: Event) -> str:
    """The template with the names of its fields."""
    text = event.template.replace("%r", "%s").replace("%d", "%s")
    return "`" + text % tuple(f"<{name}>" for name in event.fields) + "`"
