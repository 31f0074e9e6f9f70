"""Log lines for operators: one line per event, as text or as JSON."""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import TextIO

__all__ = ["FORMATS", "set_up"]

FORMATS = ("text", "json")


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


def _printable(text: str) -> str:
    """Clients choose names: a name must not begin a new line or move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Text(logging.Formatter):
    """`2026-11-21T22:08:31.123Z INFO broker: what happened`; control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        area = record.name.removeprefix("kafkalog.").removeprefix("server.")
        line = f"{_moment(record)} {record.levelname} {area}: {_printable(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    """One object per line: time, level, logger, thread, message, and a failure's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["failure"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def set_up(form: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Write kafkalog's log lines to `stream` (stderr), as one of FORMATS."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logger = logging.getLogger("kafkalog")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
