"""A node's settings of its log lines."""

from kafkalog.config.declare import Settings, Word

__all__ = ["LINES", "LogLineSettings"]

LINES = ("text", "json")
"""The forms of a log line."""


class LogLineSettings(Settings):
    """Settings of what a node logs; all are ours."""

    kafkalog_log_format = Word(
        "text",
        "How `kafkalog serve` writes its log lines to stderr: `text`, or `json`, one object a "
        "line; `--log-format` overrides it. A broker inside another program leaves that to the "
        "program's `logging`.",
        choices=LINES,
    )
