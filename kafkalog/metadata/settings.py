"""Which settings a topic has: its own, then those of this broker and of all brokers."""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kafkalog.config.settings import BrokerConfig, TopicConfig
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.image import BROKER, TOPIC, Configs, MetadataImage

__all__ = ["broker_names", "changed_topics", "topic_overrides"]

_logger = logging.getLogger(__name__)


def topic_overrides(image: MetadataImage, topic: str) -> dict[str, object]:
    """What goes over the broker's static settings for a topic.

    Kafka's directories may name settings that are not known here, and values that we refuse:
    they are left out, with a warning.
    """
    found: dict[str, object] = {}
    for resource in ("", str(image.node_id)):
        dynamic = image.config(BROKER, resource)
        for setting in TopicConfig.table.values() if dynamic else ():
            for name in (setting.synonym, *setting.also):
                if name in dynamic:
                    _put(found, setting.name, f"broker {resource or 'default'}",
                         (name, dynamic[name]))  # fmt: skip
                    break
    for name, value in image.config(TOPIC, topic).items():
        _put(found, name, f"topic {topic}", (name, value))
    return found


def _put(found: dict[str, object], setting: str, what: str, given: tuple[str, str]) -> None:
    value, problem = _value(*given)
    if problem is None:
        found[setting] = value
    else:
        _warn(what, given[0], problem)


@lru_cache(maxsize=1024)
def _value(name: str, text: str) -> tuple[Any, str | None]:
    """The value that a topic's setting, or a broker's synonym of one, stands for."""
    try:
        if name in TopicConfig.table and name not in broker_names():
            return TopicConfig.table[name].checked(text), None
        if name in TopicConfig.table and TopicConfig.table[name].synonym == name:
            return TopicConfig.table[name].checked(text), None
        config = BrokerConfig({name: text}).topic
        return config[broker_names()[name]], None
    except (InvalidSetting, KeyError) as error:
        return None, str(error) if isinstance(error, InvalidSetting) else "it is not known here"


@lru_cache(maxsize=1024)
def _warn(what: str, name: str, problem: str) -> None:
    """Once for each."""
    _logger.warning("%s: setting %s is not obeyed: %s", what, name, problem)


@lru_cache(maxsize=1)
def broker_names() -> dict[str, str]:
    """A topic's setting by each name that the broker's default of it has."""
    return {
        name: setting.name
        for setting in TopicConfig.table.values()
        for name in (setting.synonym, *setting.also)
        if name
    }


def changed_topics(old: Configs, new: Configs) -> list[str | None]:
    """Topics whose settings are others in `new`; [None]: perhaps all, by the broker's."""
    changed = [key for key in {*old, *new} if old.get(key) != new.get(key)]
    if any(kind == BROKER for kind, _ in changed):
        return [None]
    return [name for kind, name in sorted(changed) if kind == TOPIC]


def effective(image: MetadataImage, topic: str, static: BrokerConfig) -> Mapping[str, Any]:
    """All settings of a topic, as they are in effect."""
    return TopicConfig.of(topic_overrides(image, topic), static.topic)
