"""The settings of subscriptions to clients' metrics: checking and describing them.  Pure.

Source: Kafka's ClientMetricsConfigs; KIP-714.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kafkalog.config.client_metrics import SubscriptionSettings
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.group_configs import DEFAULT_SOURCE, SettingEntry
from kafkalog.telemetry.subscriptions import Subscription
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["CLIENT_METRICS_SOURCE", "subscription_entries", "subscription_problem"]

CLIENT_METRICS_SOURCE = 7
INTERVAL = "interval.ms"


def subscription_problem(
    old: Mapping[str, str], new: Mapping[str, str]
) -> tuple[ErrorCode, str] | None:
    """Why a subscription may not have these settings; None: it may.  Unknown settings that it
    already has stay as they are."""
    table = SubscriptionSettings.table
    for name, value in new.items():
        if name not in table and old.get(name) != value:
            wanted = ", ".join(table)
            return ErrorCode.INVALID_REQUEST, (
                f"Unknown client metrics configuration: {name}, wanted one of {wanted}"
            )
    try:
        Subscription(new)
    except InvalidSetting as problem:
        number = str(problem).startswith(INTERVAL) and _is_int(new[INTERVAL])
        return ErrorCode.INVALID_REQUEST if number else ErrorCode.INVALID_CONFIG, str(problem)
    return None


def _is_int(text: str) -> bool:
    """True for a number of 32 bits, which may be outside the setting's range."""
    return bool(re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", text)) and -(1 << 31) <= int(text) < 1 << 31


def subscription_entries(own: Mapping[str, str]) -> Iterator[SettingEntry]:
    """Every setting of a subscription, for DescribeConfigs."""
    for name, setting in SubscriptionSettings.table.items():
        value = (setting.show(setting.default), DEFAULT_SOURCE)
        if name in own:
            value = (own[name], CLIENT_METRICS_SOURCE)
        yield SettingEntry(name, [(name, *value)], setting)
    for name, text in own.items():
        if name not in SubscriptionSettings.table:
            yield SettingEntry(name, [(name, text, CLIENT_METRICS_SOURCE)], None)
