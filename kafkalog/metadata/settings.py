"""Which settings a topic has: its own, then those of this broker and of all brokers."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.served import INTERNAL_SEGMENT_BYTES
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.image import BROKER, TOPIC, Change, MetadataImage

__all__ = ["broker_names", "changed_topics", "conflict", "topic_overrides"]

_logger = logging.getLogger(__name__)

_OTHER_NAMES = {INTERNAL_SEGMENT_BYTES: "segment.bytes"}
"""Settings of a topic that go by another name as well."""
Problem = tuple[str, str, str]
"""Whose setting is not obeyed, which, and why."""
Warn = Callable[[str, str, str], None]


class _Layer(NamedTuple):
    """What one resource says of a topic's settings."""

    whose: str
    values: dict[str, tuple[str, Any]]
    """By the topic's name of a setting: the name that was used, and the value."""


def topic_overrides(
    image: MetadataImage, topic: str, static: TopicConfig, told: set[Problem] | None = None
) -> dict[str, object]:
    """What goes over the broker's static settings, `static`, for a topic.

    Kafka's directories may name settings that are not known here, and values that we refuse:
    they are left out, with a warning.  So is what contradicts a setting of more weight: a
    topic's own come first, the broker's file last.  `told`: what was warned of already.
    """
    warn = _warn_once(set() if told is None else told)
    layers = _layers(image, image.config(TOPIC, topic), f"topic {topic}", warn)
    merged = _merged(layers)
    try:
        TopicConfig.of(merged, static)
        return merged
    except InvalidSetting:
        return _without_conflicts(layers, static, f"topic {topic}", warn)


def conflict(image: MetadataImage, own: Mapping[str, str], static: TopicConfig) -> str | None:
    """Why a topic with the settings `own` would not go together with the brokers' defaults.

    None: nothing speaks against it; values that are none are not looked at here.
    """
    try:
        TopicConfig.of(_merged(_layers(image, own, "", lambda *_: None)), static)
    except InvalidSetting as error:
        return str(error)
    return None


def _layers(image: MetadataImage, own: Mapping[str, str], whose: str, warn: Warn) -> list[_Layer]:
    """All brokers', this broker's, the topic's: the later one counts."""
    found: list[_Layer] = []
    for resource in ("", str(image.node_id)):
        dynamic = image.config(BROKER, resource)
        # A setting's first name counts.
        ranks = broker_names()
        known = sorted((name for name in dynamic if name in ranks), key=lambda n: ranks[n].rank)
        firsts = {ranks[name].setting: name for name in reversed(known)}
        given = list(reversed(firsts.items()))
        found.append(_layer(f"broker {resource or 'default'}", given, dynamic, warn))
    # The names that stand for others last: they count.
    names = sorted(own, key=lambda name: name in _OTHER_NAMES)
    found.append(_layer(whose, [(name, name) for name in names], own, warn))
    return found


def _layer(
    whose: str, given: Iterable[tuple[str, str]], texts: Mapping[str, str],
    warn: Warn,
) -> _Layer:  # fmt: skip
    layer = _Layer(whose, {})
    for setting, name in given:
        value, problem = _value(name, texts[name])
        if problem is None:
            layer.values[_OTHER_NAMES.get(setting, setting)] = (name, value)
        else:
            warn(whose, name, problem)
    return layer


def _merged(layers: Iterable[_Layer]) -> dict[str, object]:
    return {name: value for layer in layers for name, (_, value) in layer.values.items()}


def _without_conflicts(
    layers: list[_Layer], static: TopicConfig, topic: str, warn: Warn
) -> dict[str, object]:
    """The settings of most weight that go together, each one that is left out with a warning."""
    table = TopicConfig.table
    file = {name: (table[name].synonym, static[name]) for name in table if static.explicit(name)}
    kept: dict[str, object] = {}
    for whose, values in reversed([_Layer("the broker's file", file), *layers]):
        for setting, (name, value) in values.items():
            try:
                TopicConfig.of({setting: value, **kept})
            except InvalidSetting as error:
                warn(topic, f"{name} of {whose}", str(error))
                if values is file:
                    kept[setting] = table[setting].default
            else:
                kept.setdefault(setting, value)
    return kept


@lru_cache(maxsize=1024)
def _value(name: str, text: str) -> tuple[Any, str | None]:
    """The value that a topic's setting, or a broker's synonym of one, stands for."""
    try:
        if name in _OTHER_NAMES:
            return TopicConfig.table[_OTHER_NAMES[name]].checked(text, name), None
        if name in TopicConfig.table and name not in broker_names():
            return TopicConfig.table[name].checked(text), None
        if name in TopicConfig.table and TopicConfig.table[name].synonym == name:
            return TopicConfig.table[name].checked(text), None
        config = BrokerConfig({name: text}).topic
        return config[broker_names()[name].setting], None
    except (InvalidSetting, KeyError) as error:
        return None, str(error) if isinstance(error, InvalidSetting) else "it is not known here"


def _warn_once(told: set[Problem]) -> Warn:
    """Warns of what is not in `told` yet."""

    def warn(whose: str, name: str, why: str) -> None:
        if (whose, name, why) not in told:
            told.add((whose, name, why))
            _logger.warning("%s: setting %s is not obeyed: %s", whose, name, why)

    return warn


class _BrokerName(NamedTuple):
    """A name that the broker's default of a topic's setting has."""

    setting: str
    rank: int
    """Its place among all of them."""


@lru_cache(maxsize=1)
def broker_names() -> dict[str, _BrokerName]:
    """Each name that the broker's default of a topic's setting has."""
    names = [
        (name, setting.name)
        for setting in TopicConfig.table.values()
        for name in (setting.synonym, *setting.also)
        if name
    ]
    return {name: _BrokerName(setting, rank) for rank, (name, setting) in enumerate(names)}


def changed_topics(change: Change) -> list[str | None]:
    """Topics whose settings are others now; [None]: perhaps all, by the broker's."""
    if any(kind == BROKER for kind, _ in change.resources):
        return [None]
    return [name for kind, name in change.resources if kind == TOPIC]
