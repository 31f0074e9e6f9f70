"""Log lines for operators: one line per event, as text or as JSON."""

import atexit
import json
import logging
import sys
from datetime import datetime, timezone
from typing import TextIO

from kafkalog.logs.events import event_of, fields_of
from kafkalog.logs.limit import tell_all

__all__ = ["TEXT_MAX", "set_up"]

TEXT_MAX, TRACEBACK_MAX = 8_192, 65_536
"""Characters of a message or of a field, and of a traceback; clients choose names."""


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


def _cut(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more)"


def _printable(text: str) -> str:
    """Clients choose names: a name must not begin a new line or move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Text(logging.Formatter):
    """`2026-11-21T22:08:31.123Z INFO broker broker_started: what happened`; control characters
    escaped.  The lines of a traceback are indented: each event begins with its time."""

    def format(self, record: logging.LogRecord) -> str:
        area = record.name.removeprefix("kafkalog.").removeprefix("server.")
        event = event_of(record).name
        where = f"{area} {event}" if event else area
        message = _printable(_cut(record.getMessage()))
        line = f"{_moment(record)} {record.levelname} {where}: {message}"
        if record.exc_info:
            traceback = _cut(self.formatException(record.exc_info), TRACEBACK_MAX)
            line += "".join(f"\n    {_printable(one)}" for one in traceback.split("\n"))
        return line


class _Json(logging.Formatter):
    """One object per line: time, level, logger, thread, event, message, the event's fields, and a
    failure's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        event = event_of(record)
        found: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "event": event.name or None,
            "message": _cut(record.getMessage()),
        }
        fields = fields_of(event, record)
        if fields:
            found["fields"] = {
                name: _cut(value) if isinstance(value, str) else value
                for name, value in fields.items()
            }
        if record.exc_info:
            found["failure"] = _cut(self.formatException(record.exc_info), TRACEBACK_MAX)
        line = json.dumps(found, ensure_ascii=False)
        if line.isprintable():
            return line
        # Outside strings all is printable; some readers take other characters for ends of lines.
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def set_up(form: str, level: str | None = "INFO", stream: TextIO | None = None) -> None:
    """Write kafkalog's log lines to `stream` (stderr), as `text` or `json`.  `level` None: as it
    is."""
    atexit.register(tell_all)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logger = logging.getLogger("kafkalog")
    logger.handlers[:] = [handler]
    if level is not None:
        logger.setLevel(level)
    logger.propagate = False
