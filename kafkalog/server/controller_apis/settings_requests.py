"""The requests that change settings: how they are read, and what they would change."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.metadata import configs, translation
from kafkalog.metadata.requests import SettingChanges
from kafkalog.wire import apis

__all__ = ["SETTINGS_REQUESTS", "SettingsRequest"]


class SettingsRequest(NamedTuple):
    """A kind of request."""

    convert: Callable[[Any], SettingChanges]
    plan: Callable[..., tuple[list[tuple[str, Any]], list[dict[str, Any]]]]


SETTINGS_REQUESTS: Mapping[int, SettingsRequest] = {
    apis.ALTER_CONFIGS.key: SettingsRequest(translation.all_settings, configs.alter_configs),
    apis.INCREMENTAL_ALTER_CONFIGS.key: SettingsRequest(
        translation.some_settings, configs.incremental_alter_configs
    ),
}
"""By API key."""
