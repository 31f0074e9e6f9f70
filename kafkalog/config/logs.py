"""A node's settings of its log lines."""

from kafkalog.config.declare import Settings, Whole, Word

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
    kafkalog_slow_request_ms = Whole(
        0,
        "A request that takes as long is logged, with the time of each phase, by "
        "`kafka.request.logger`; the waits that Fetch, ShareFetch, JoinGroup and SyncGroup ask for "
        "do not count. 0: none is.",
        unit="ms",
        high=86_400_000,
    )
