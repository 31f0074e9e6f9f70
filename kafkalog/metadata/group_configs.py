"""The settings of single groups: checking and describing them.  Pure.

Source: Kafka's GroupConfig; KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.config import share_records
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.consumer_group import GroupSettings, own_problem
from kafkalog.config.declare import Setting
from kafkalog.errors import InvalidSetting

__all__ = ["DEFAULT_SOURCE", "GROUP_SOURCE", "SettingEntry", "group_entries", "problem_of"]

GROUP_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 8, 4, 5
"""Where a value comes from; the numbers are Kafka's."""


def problem_of(
    old: Mapping[str, str], new: Mapping[str, str], static: BrokerConfig
) -> str | None:  # fmt: skip
    """Why a group may not have these settings; None: it may.  Settings that have no effect here
    stay as they are."""
    own = {}
    for key, value in new.items():
        setting = GroupSettings.table.get(key)
        if setting is None:
            if old.get(key) != value:
                wanted = ", ".join(GroupSettings.table)
                return f"Unknown group config name: {key}, wanted one of {wanted}"
            continue
        try:
            own[key] = setting.checked(value)
        except InvalidSetting as error:
            return str(error)
    of_records = {key: own.pop(key) for key in list(own) if key in share_records.NAMES}
    return own_problem(own, static) or share_records.own_problem(of_records, static)


class SettingEntry(NamedTuple):
    """A setting of a group, or of a subscription, as clients see it."""

    name: str
    chain: list[tuple[str, str | None, int]]
    """(name, value, source), the one in effect first."""
    setting: Setting[Any] | None


def group_entries(own: Mapping[str, str], static: BrokerConfig) -> Iterator[SettingEntry]:
    """Every setting of a group, for DescribeConfigs."""
    for name, setting in GroupSettings.table.items():
        stands = setting.synonym in static  # a setting of the broker stands for it
        source = STATIC_SOURCE if stands and static.explicit(setting.synonym) else DEFAULT_SOURCE
        chain: list[tuple[str, str | None, int]] = []
        if name in own:
            chain.append((name, own[name], GROUP_SOURCE))
        if stands:
            chain.append((setting.synonym, setting.show(static[setting.synonym]), source))
        elif name in share_records.NAMES:
            chain.append((name, setting.show(setting.default), DEFAULT_SOURCE))
        if chain:
            yield SettingEntry(name, chain, setting)
    for name, value in own.items():
        if name not in GroupSettings.table:
            yield SettingEntry(name, [(name, value, GROUP_SOURCE)], None)
