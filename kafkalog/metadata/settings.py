"""Determines a topic's settings: its own, then those of this broker and of all brokers."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.served import INTERNAL_SEGMENT_BYTES
from kafkalog.config.server import CORDONED
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER, TOPIC, Change, MetadataImage

__all__ = ["broker_names", "changed_topics", "conflict", "is_cordoned", "topic_overrides"]

_logger = limited(__name__)

_OTHER_NAMES = {INTERNAL_SEGMENT_BYTES: "segment.bytes"}
"""Topic settings that have another name as well."""
Problem = tuple[str, str, str]
"""The resource, the setting that is ignored, and why."""
Warn = Callable[[str, str, str], None]


class _Layer(NamedTuple):
    """A topic's settings as one resource has them."""

    whose: str
    values: dict[str, tuple[str, Any]]
    """By the setting's name on topics: the name that was used, and the value."""


def topic_overrides(
    image: MetadataImage, topic: str, static: TopicConfig, told: set[Problem] | None = None
) -> dict[str, object]:
    """The settings that override the broker's static settings, `static`, for a topic.

    Kafka's directories may have settings that are unknown here, and values that we refuse: they are
    ignored, with a warning.  So is a setting that contradicts one of higher precedence: a
    topic's own come first, the broker's file last.  `told`: warnings already given.
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
    """Why a topic with the settings `own` would contradict the brokers' defaults.

    None: it would not; invalid values are not checked here.
    """
    try:
        TopicConfig.of(_merged(_layers(image, own, "", lambda *_: None)), static)
    except InvalidSetting as error:
        return str(error)
    return None


def _layers(image: MetadataImage, own: Mapping[str, str], whose: str, warn: Warn) -> list[_Layer]:
    """All brokers', this broker's, the topic's: later ones override earlier ones."""
    found: list[_Layer] = []
    for resource in ("", str(image.node_id)):
        dynamic = image.config(BROKER, resource)
        # A setting's first name counts.
        ranks = broker_names()
        known = sorted((name for name in dynamic if name in ranks), key=lambda n: ranks[n].rank)
        firsts = {ranks[name].setting: name for name in reversed(known)}
        given = list(reversed(firsts.items()))
        found.append(_layer(f"broker {resource or 'default'}", given, dynamic, warn))
    # Synonyms of higher precedence come last: the last one counts.
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
    """The settings without contradictions; each setting that is dropped gives a warning."""
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
    """The value of a topic's setting, or of a broker's synonym for one."""
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
    """Warn about what is not in `told` yet."""

    def warn(whose: str, name: str, why: str) -> None:
        if (whose, name, why) not in told:
            told.add((whose, name, why))
            _logger.warning("%s: setting %s is ignored: %s", whose, name, why)

    return warn


class _BrokerName(NamedTuple):
    """A name of the broker's default for a topic's setting."""

    setting: str
    rank: int
    """Its index among all of them."""


@lru_cache(maxsize=1)
def broker_names() -> dict[str, _BrokerName]:
    """Every name of the broker's default for a topic's setting."""
    names = [
        (name, setting.name)
        for setting in TopicConfig.table.values()
        for name in (setting.synonym, *setting.also)
        if name
    ]
    return {name: _BrokerName(setting, rank) for rank, (name, setting) in enumerate(names)}


def changed_topics(change: Change) -> list[str | None]:
    """Topics whose settings changed; [None]: perhaps all, through the broker's."""
    if any(kind == BROKER for kind, _ in change.resources):
        return [None]
    return [name for kind, name in change.resources if kind == TOPIC]


def is_cordoned(image: MetadataImage, static: BrokerConfig) -> bool:
    """True if cordoned.log.dirs names the broker's directory (it can name no other): as set at run
    time, for this broker or all, else in its properties."""
    for resource in (str(image.node_id), ""):
        if (said := image.config(BROKER, resource).get(CORDONED)) is not None:
            return bool(said)
    return bool(static.get(CORDONED, ()))
