"""A node's settings of its metrics and of the port that shows them."""

from __future__ import annotations

import re

from kafkalog.config.declare import Settings, Whole, Word
from kafkalog.errors import InvalidSetting

__all__ = ["MetricsSettings"]

LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535


class MetricsSettings(Settings):
    """Settings of metrics; all are ours."""

    kafkalog_http_listen = Word(
        "",
        "Where to serve /metrics and /health over HTTP, without encryption or passwords, and the "
        "console if kafkalog.console.enable says so: host:port, or a port of 127.0.0.1; port 0 "
        "picks a free one. Empty: nowhere. Needs `kafkalog[metrics]`.",
    )
    kafkalog_metrics_max_topics = Whole(
        100,
        "Topics with a label of their own in metrics; later ones are summed.",
        low=0,
        high=1_000_000,
    )
    kafkalog_metrics_max_partitions = Whole(
        1000,
        "Partitions with a label of their own in metrics of logs; sizes of later ones are "
        "summed. Also the most committed offsets that are shown.",
        low=0,
        high=1_000_000,
    )
    kafkalog_metrics_max_groups = Whole(
        100,
        "Groups with a label of their own in metrics; later ones only count.",
        low=0,
        high=1_000_000,
    )

    @property
    def http_place(self) -> tuple[str, int] | None:
        """Host and port of the HTTP server; None: there is none.

        Raises: InvalidSetting.
        """
        text = self.kafkalog_http_listen.strip()
        if not text:
            return None
        match = re.fullmatch(r"(?:(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/\s]*)):)?([0-9]{1,5})", text)
        if match is None or int(match[3]) > PORT_MAX:
            raise InvalidSetting(
                f"kafkalog.http.listen: found {text!r}, wanted host:port, [::1]:port or a port of "
                f"{LOOPBACK}"
            )
        return match[1] or match[2] or LOOPBACK, int(match[3])
