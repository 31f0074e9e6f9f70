"""Resources whose settings are of their own kind, unlike those of topics and brokers.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.group_configs import SettingEntry, group_entries, problem_of
from kafkalog.metadata.image import CLIENT_METRICS, GROUP, METADATA_VERSION
from kafkalog.metadata.levels import GROUP_VERSION
from kafkalog.metadata.subscription_configs import subscription_entries, subscription_problem
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["OWN_SETTINGS", "OwnSettings"]

Values = Mapping[str, str]
Problem = tuple[ErrorCode, str]


class OwnSettings(NamedTuple):
    """The settings of one kind of resource."""

    title: str
    feature: str
    """Only a cluster with this feature has them."""
    nameless: str
    """Why there are none without a name."""
    problem: Callable[[Values, Values, BrokerConfig], Problem | None]
    """Why a resource with the first settings may not have the second ones; None: it may."""
    entries: Callable[[Values, BrokerConfig], Iterator[SettingEntry]]
    """Every setting of a resource, for DescribeConfigs."""


def _of_group(old: Values, new: Values, static: BrokerConfig) -> Problem | None:
    problem = problem_of(old, new, static)
    return None if problem is None else (ErrorCode.INVALID_CONFIG, problem)


OWN_SETTINGS: Mapping[int, OwnSettings] = {
    GROUP: OwnSettings(
        "groups", GROUP_VERSION, "Default group resources are not allowed.", _of_group,
        group_entries,
    ),
    CLIENT_METRICS: OwnSettings(
        "client metrics", METADATA_VERSION, "Subscription name can't be empty",
        lambda old, new, _: subscription_problem(old, new),
        lambda own, _: subscription_entries(own),
    ),
}  # fmt: skip
"""By kind."""
