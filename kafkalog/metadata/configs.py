"""Changes and describes the settings of topics and brokers: from a request and the image.

Pure, as kafkalog.kraft.plan.  Source: Kafka's ConfigAdminManager,
ConfigurationControlManager, ConfigHelper.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.client_metrics import SubscriptionSettings
from kafkalog.config.declare import Secret, Setting, Words
from kafkalog.config.listeners import own_setting
from kafkalog.config.protection import bare_name, refuse_protection
from kafkalog.config.served import INTERNAL_SEGMENT_BYTES, check_segment_bytes, check_served
from kafkalog.config.server import DYNAMIC, ServerConfig, is_dynamic
from kafkalog.config.ssl import KEY_SETTINGS
from kafkalog.config.topic import TopicConfig
from kafkalog.disk.layout import topic_problem
from kafkalog.errors import InvalidSetting, NotFound, UnknownSetting
from kafkalog.metadata.image import BROKER, CLIENT_METRICS, ELIGIBLE_REPLICAS, TOPIC, MetadataImage
from kafkalog.metadata.own_settings import OWN_SETTINGS
from kafkalog.metadata.requests import (
    ResourceChange,
    SettingChange,
    SettingChanges,
    SettingsAsked,
)
from kafkalog.metadata.settings import conflict
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "DELETE",
    "SET",
    "Refused",
    "alter_configs",
    "check_changes",
    "checked_topic_configs",
    "describe_configs",
    "incremental_alter_configs",
    "is_sensitive",
    "new_topic_entries",
]

BROKER_LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

TOPIC_SOURCE, BROKER_SOURCE, DEFAULT_BROKER_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 4, 5
_TYPES = {
    "bool": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7, "password": 9,
}  # fmt: skip

_AT_START = frozenset({
    "broker.id", "log.dir", "log.dirs",
})  # fmt: skip
"""Names that a properties file may have, but are not our settings, and that no running broker
changes."""

_THREADS = ("num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir")
"""Counts of threads: a change may at most double or halve them, as in Kafka, so that a typing error
does not start thousands."""

_NULL = frozenset({
    "advertised.listeners", "broker.rack", "control.plane.listener.name",
    "inter.broker.listener.name", "log.flush.interval.ms", "log.roll.jitter.ms", "log.roll.ms",
})  # fmt: skip
"""Settings of a broker that Kafka shows as null if they are not set."""
MIN_INSYNC = "min.insync.replicas"
SEGMENT_BYTES = "segment.bytes"
_SENSITIVE = re.compile(r"password|secret|credential|jaas|\.key$|keystore|truststore")

_ALONE = frozenset((
    *(s.name for s in TopicConfig.table.values() if not s.synonym), *SubscriptionSettings.table,
))  # fmt: skip
"""Settings of topics and subscriptions without a broker-wide default."""

Record = tuple[str, Any]
KeyCheck = Callable[[MetadataImage], None]
"""Refuses settings with keys that cannot be used.  Raises: InvalidSetting, NotFound."""
Result = dict[str, Any]


class Refused(Exception):
    """Why an item of a request is refused: Kafka's error and a sentence."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_sensitive(name: str) -> bool:
    """True if a setting's value is secret, also one for a single listener."""
    setting = ServerConfig.table.get(bare_name(name))
    return bool(_SENSITIVE.search(name)) if setting is None else isinstance(setting, Secret)


# ---- checking --------------------------------------------------------------------------------


def checked_topic_configs(
    image: MetadataImage, topic: str, configs: Mapping[str, str | None], static: BrokerConfig
) -> None:
    """Refuse unknown topic settings, and values that contradict each other.

    Unknown settings that the topic already has stay as they are.

    Raises: Refused.
    """
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {nulls}"
        )
    old = image.config(TOPIC, topic)
    if not configs and not old:
        return  # most new topics
    wanted = {
        name: value
        for name, value in configs.items()
        if name in TopicConfig.table or old.get(name) != value
    }
    try:
        if small := wanted.pop(INTERNAL_SEGMENT_BYTES, None):
            TopicConfig.table[SEGMENT_BYTES].checked(small, INTERNAL_SEGMENT_BYTES)
        made = TopicConfig.of(wanted)
        if old.get(SEGMENT_BYTES) != wanted.get(SEGMENT_BYTES):
            check_segment_bytes(SEGMENT_BYTES, made.segment_bytes)
    except UnknownSetting as error:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {error}") from None
    except InvalidSetting as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    known = {name: value for name, value in configs.items() if value is not None}
    problem = conflict(image, known, static.topic)
    if problem not in (None, conflict(image, old, static.topic)):
        raise Refused(ErrorCode.INVALID_CONFIG, f"with the brokers' defaults: {problem}")


def _check_topics(old: MetadataImage, new: MetadataImage, static: BrokerConfig) -> None:
    """Refuse a broker's default that contradicts a topic's own settings.

    Raises: Refused.
    """
    looked_at: set[frozenset[tuple[str, str]]] = set()  # thousands of topics have the same
    for topic in (None, *new.topics):
        own = new.config(TOPIC, topic) if topic is not None else {}
        if (one := frozenset(own.items())) in looked_at:
            continue
        looked_at.add(one)
        problem = conflict(new, own, static.topic)
        if problem not in (None, conflict(old, own, static.topic)):
            where = "" if topic is None else f"topic {topic}: "
            raise Refused(ErrorCode.INVALID_REQUEST, f"{where}{problem}")


def _check_broker(
    image: MetadataImage, name: str, changed: Mapping[str, str | None], static: BrokerConfig
) -> None:
    _check_broker_name(image, name)
    _check_min_insync(image, name, changed)
    known = set(static.names()) | _AT_START
    for problem, refused in (
        ("Cannot update these configs dynamically", known - DYNAMIC - KEY_SETTINGS),
        ("These security configs can be dynamically updated only per-listener using the listener "
         "prefix", KEY_SETTINGS),
        ("Cannot update these configs at default cluster level, broker id must be specified",
         {key for key in changed if not name and _is_key(key)}),
    ):  # fmt: skip
        if found := sorted(refused & changed.keys()):
            raise Refused(ErrorCode.INVALID_REQUEST, f"{problem}: {found}")
    for key, value in changed.items():
        try:
            if not _is_key(key) or static.get("zookeeper.connect"):
                refuse_protection(key, value, running=own_setting(key) is not None)
            if value is not None and is_dynamic(key):
                check_served(type(static)({key: value}))
        except InvalidSetting as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    for key in _THREADS:
        if key in changed and key in static.table:
            _check_threads(image, name, (key, changed[key]), static)


def _is_key(name: str) -> bool:
    """True for a setting of a listener's keys."""
    own = own_setting(name)
    return own is not None and not own.mechanism and own.name in KEY_SETTINGS


def _check_keys(
    image: MetadataImage, changed: Mapping[str, str | None], check: KeyCheck | None
) -> None:
    if check is not None and any(map(_is_key, changed)):
        try:
            check(image)
        except (InvalidSetting, NotFound) as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_min_insync(image: MetadataImage, name: str, changed: Mapping[str, str | None]) -> None:
    """KIP-966: Kafka's rules for the one setting that eligible leader replicas depend on."""
    if MIN_INSYNC not in changed or not image.features.get(ELIGIBLE_REPLICAS):
        return
    if name:
        problem = f"Broker-level {MIN_INSYNC} cannot be altered while ELR is enabled."
    elif changed[MIN_INSYNC] is None:
        problem = f"Cluster-level {MIN_INSYNC} cannot be removed while ELR is enabled."
    else:
        return
    raise Refused(ErrorCode.INVALID_CONFIG, problem)


def _check_threads(
    image: MetadataImage, resource: str, change: tuple[str, str | None], static: BrokerConfig
) -> None:
    name, value = change
    # The values in effect, by precedence: this broker's own, that of all brokers, the file's.
    given = {rank: image.config(BROKER, rank).get(name) for rank in (str(image.node_id), "")}
    old, new = (
        next((static.table[name].checked(text) for text in ranks.values() if text is not None),
             static[name])
        for ranks in (given, {**given, resource: value})
    )  # fmt: skip
    if not old // 2 <= new <= old * 2:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{name}: found {new}, wanted between half and double of the current {old}",
        )


def _check_broker_name(image: MetadataImage, name: str) -> None:
    if name not in ("", str(image.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {image.node_id} or empty string, but received {name}",
        )


def _check_resource(image: MetadataImage, kind: int, name: str) -> None:
    if kind == TOPIC:
        if name not in image.topics:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
    elif kind == BROKER:
        _check_broker_name(image, name)
    elif kind == BROKER_LOGGER:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    elif kind not in OWN_SETTINGS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind}")
    elif not image.features.get(OWN_SETTINGS[kind].feature):
        what = f"There are no settings of {OWN_SETTINGS[kind].title} here."
        raise Refused(ErrorCode.INVALID_REQUEST, what)
    elif not name:
        raise Refused(ErrorCode.INVALID_REQUEST, OWN_SETTINGS[kind].nameless)


# ---- altering --------------------------------------------------------------------------------


def incremental_alter_configs(
    image: MetadataImage, asked: SettingChanges, static: BrokerConfig,
    check: KeyCheck | None = None,
) -> tuple[list[Record], list[Result]]:  # fmt: skip
    """IncrementalAlterConfigs: records, and its response's `responses`."""

    def wanted(resource: ResourceChange) -> dict[str, str]:
        kind, name, changes = resource
        check_changes(changes)
        unknown = [change.operation for change in changes if change.operation not in _OPERATIONS]
        if unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {unknown[0]}")
        found = dict(image.config(kind, name))
        for change in changes:
            if change.operation == DELETE:
                found.pop(change.name, None)
            elif change.operation == SET:
                found[change.name] = change.value or ""
            else:
                found[change.name] = _listed(image, (kind, name), found, change, static)
        return found

    return _alter(image, asked, static, wanted, check)


def alter_configs(
    image: MetadataImage, asked: SettingChanges, static: BrokerConfig,
    check: KeyCheck | None = None,
) -> tuple[list[Record], list[Result]]:  # fmt: skip
    """AlterConfigs, which replaces all settings of a resource; records and `responses`."""

    def wanted(resource: ResourceChange) -> dict[str, str]:
        check_changes(resource.changes)
        return {change.name: change.value or "" for change in resource.changes}

    return _alter(image, asked, static, wanted, check)


def check_changes(changes: Sequence[SettingChange]) -> None:
    """Refuse names that appear twice and values that are missing.

    Raises: Refused.
    """
    if any(count > 1 for count in Counter(change.name for change in changes).values()):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [c.name for c in changes if c.value is None and c.operation != DELETE]
    if nulls:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )


def _listed(
    image: MetadataImage,
    resource: tuple[int, str],
    found: Mapping[str, str],
    change: SettingChange,
    static: BrokerConfig,
) -> str:
    """The list with words added (APPEND) or removed (SUBTRACT)."""
    setting = _setting(resource[0], change.name, static)
    if not isinstance(setting, Words):
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATIONS[change.operation]} to key {change.name} because its type is "
            "not LIST.",
        )
    present = found.get(change.name)
    if present is None:
        # Not set here: the new list contains the value in effect.
        present = ",".join(static.topic[setting.name])
    words = [word.strip() for word in present.split(",") if word.strip()]
    given = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.operation == APPEND:
        words += [word for word in dict.fromkeys(given) if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)


def _setting(kind: int, name: str, static: BrokerConfig) -> Setting[Any] | None:
    if kind == TOPIC:
        return TopicConfig.table.get(name)
    for setting in TopicConfig.table.values():
        if name == setting.synonym:
            return setting
    return static.table.get(name)


def _alter(
    image: MetadataImage,
    asked: SettingChanges,
    static: BrokerConfig,
    wanted: Callable[[ResourceChange], dict[str, str]],
    check: KeyCheck | None,
) -> tuple[list[Record], list[Result]]:
    counts = Counter((one.kind, one.name) for one in asked.resources)
    records: list[Record] = []
    results: list[Result] = []
    for resource in asked.resources:
        kind, name = resource.kind, resource.name
        result: Result = {"error_code": 0, "error_message": None,
                          "resource_type": kind, "resource_name": name}  # fmt: skip
        results.append(result)
        try:
            if counts[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if (kind, name) == (TOPIC, ""):
                raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            _check_resource(image, kind, name)
            new = wanted(resource)
            changed = _changed(image.config(kind, name), new)
            after = image._replace(configs={**image.configs, (kind, name): new})
            if kind == TOPIC:
                checked_topic_configs(image, name, new, static)
            elif kind in OWN_SETTINGS:
                if problem := OWN_SETTINGS[kind].problem(image.config(kind, name), new, static):
                    raise Refused(*problem)
            else:
                _check_broker(image, name, changed, static)
                _check_topics(image, after, static)
                _check_keys(after, changed, check)
        except Refused as error:
            result.update(error_code=int(error.code), error_message=str(error))
            continue
        image = after  # later resources are checked against this
        if not asked.validate_only:
            fields = {"resource_type": kind, "resource_name": name}
            records += [("ConfigRecord", {**fields, "name": key, "value": value})
                        for key, value in changed.items()]  # fmt: skip
    return records, results


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
    """The changes to a resource's settings; None removes a setting."""
    gone: dict[str, str | None] = {name: None for name in old if name not in new}
    return {**gone, **{name: value for name, value in new.items() if old.get(name) != value}}


# ---- describing --------------------------------------------------------------------------------


def describe_configs(
    image: MetadataImage, asked: SettingsAsked, static: BrokerConfig
) -> list[Result]:
    """DescribeConfigs; its response's `results`."""
    results: list[Result] = []
    # Each resource once: a request is short, and the answer long.
    resources = {(one.kind, one.name): one for one in asked.resources}
    for (kind, name), resource in resources.items():
        result: Result = {"error_code": 0, "error_message": None, "resource_type": kind,
                          "resource_name": name, "configs": []}  # fmt: skip
        results.append(result)
        try:
            entries = _entries(image, kind, name, static)
        except Refused as error:
            result.update(error_code=int(error.code), error_message=str(error))
            continue
        wanted = resource.keys
        for entry in entries:
            if not wanted or entry["name"] in wanted:
                if not asked.synonyms:
                    entry["synonyms"] = []
                if not asked.documentation:
                    entry["documentation"] = None
                result["configs"].append(entry)
    return results


def _entries(
    image: MetadataImage, kind: int, name: str, static: BrokerConfig
) -> Iterator[dict[str, Any]]:
    if (own := OWN_SETTINGS.get(kind)) is not None:
        given = image.config(kind, name)
        if image.features.get(own.feature):
            if not name and kind == CLIENT_METRICS:
                raise Refused(ErrorCode.INVALID_REQUEST, own.nameless)
            return (_entry(*one) for one in own.entries(given, static))
        return (_entry(key, [(key, value, TOPIC_SOURCE)], None) for key, value in given.items())
    if kind == TOPIC and (problem := topic_problem(name)) is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    _check_resource(image, kind, name)
    if kind == TOPIC:
        return _topic_entries(image, name, static)
    return _broker_entries(image, name, static)


Chain = list[tuple[str, str | None, int]]
"""(name, value, source) of a setting, the effective one first."""


def _topic_entries(
    image: MetadataImage, topic: str, static: BrokerConfig
) -> Iterator[dict[str, Any]]:
    """Every setting of a topic, for DescribeConfigs."""
    given = image.config(TOPIC, topic)
    for setting, chain, entry, _ in _without_own(image, static):
        value = given.get(setting.name)
        yield dict(entry) if value is None else _own_entry(setting, value, chain)
    yield from _foreign_entries(given)


def new_topic_entries(
    image: MetadataImage, static: BrokerConfig, own: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Every setting of a topic that is created with its `own` settings, for CreateTopics."""
    if not own:
        return [short for _, _, _, short in _without_own(image, static)]
    found = []
    for setting, chain, _, short in _without_own(image, static):
        value = own.get(setting.name)
        found.append(short if value is None else _short(_own_entry(setting, value, chain)))
    return [*found, *map(_short, _foreign_entries(own))]


def _foreign_entries(given: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    """Kafka's settings that have no effect here, but are stored."""
    for name, value in given.items():
        if name not in TopicConfig.table:
            yield _entry(name, [(name, value, TOPIC_SOURCE)], None)


_Plain = tuple[Setting[Any], Chain, dict[str, Any], dict[str, Any]]
"""A topic's setting with the brokers' value: its entry in DescribeConfigs and in CreateTopics.
Immutable."""
_last_plain: tuple[tuple[Any, ...], list[_Plain]] = ((), [])
"""The last inputs, and the result: all topics share it."""


def _without_own(image: MetadataImage, static: BrokerConfig) -> list[_Plain]:
    global _last_plain
    of = (image.node_id, image.config(BROKER, str(image.node_id)), image.config(BROKER, ""), static)
    last, found = _last_plain
    if len(last) != len(of) or any(a is not b for a, b in zip(last, of, strict=True)):
        found = []
        for setting in TopicConfig.table.values():
            chain = _broker_chain(image, setting, static)
            entry = _entry(setting.name, chain, setting)
            found.append((setting, chain, entry, _short(entry)))
        _last_plain = of, found
    return found


def _own_entry(setting: Setting[Any], value: str, chain: Chain) -> dict[str, Any]:
    return _entry(setting.name, [(setting.name, value, TOPIC_SOURCE), *chain], setting)


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "value", "read_only", "config_source", "is_sensitive")
    return {key: entry[key] for key in keys}


def _broker_chain(image: MetadataImage, setting: Setting[Any], static: BrokerConfig) -> Chain:
    """The brokers' value of a topic's setting, down to its default."""
    chain: Chain = []
    for resource, source in ((str(image.node_id), BROKER_SOURCE), ("", DEFAULT_BROKER_SOURCE)):
        dynamic = image.config(BROKER, resource)
        for name in (setting.synonym, *setting.also):
            if name in dynamic:
                chain.append((name, dynamic[name], source))
                break
    shown = setting.synonym or setting.name
    if static.topic.explicit(setting.name):
        chain.append((shown, _text(setting, static.topic[setting.name]), STATIC_SOURCE))
    default = static.topic_defaults()[setting.name]
    chain.append((shown, _text(setting, default), DEFAULT_SOURCE))
    return chain


def _default(name: str, text: str) -> str | None:
    """A broker's default as Kafka shows it: null if synonyms determine the setting."""
    return None if name in _NULL else text


def _broker_entries(
    image: MetadataImage, resource: str, static: BrokerConfig
) -> Iterator[dict[str, Any]]:
    """For this broker, all settings; for "", those set at run time for all brokers."""
    default = image.config(BROKER, "")
    own = image.config(BROKER, resource) if resource else {}
    topics = {s.synonym: s for s in TopicConfig.table.values() if s.synonym}
    known: dict[str, Setting[Any]] = {**topics, **static.table}
    if not resource:
        for name, value in default.items():
            chain: Chain = [(name, value, DEFAULT_BROKER_SOURCE)]
            yield _entry(name, chain, known.get(name))
        return
    for name, setting in known.items():
        if name in topics and name not in static.table:
            chain = _broker_chain(image, setting, static)
        else:
            chain = [(name, text, source)
                     for given, source in ((own, BROKER_SOURCE), (default, DEFAULT_BROKER_SOURCE))
                     if (text := given.get(name)) is not None]  # fmt: skip
            if static.explicit(name):
                chain.append((name, _text(setting, static[name]), STATIC_SOURCE))
            chain.append((name, _text(setting, setting.default), DEFAULT_SOURCE))
        last, text, source = chain.pop()
        chain.append((last, _default(name, text or ""), source))
        yield _entry(name, chain, setting, read_only=name not in DYNAMIC)
    for name, value in {**default, **own}.items():
        if name not in known:
            source = BROKER_SOURCE if name in own else DEFAULT_BROKER_SOURCE
            yield _entry(name, [(name, value, source)], None)


def _entry(
    name: str, chain: Chain, setting: Setting[Any] | None, read_only: bool = False
) -> dict[str, Any]:
    sensitive = is_sensitive(name)
    synonyms = [{"name": n, "value": None if sensitive else value, "source": source}
                for n, value, source in chain
                if source != DEFAULT_SOURCE or n not in _ALONE]  # fmt: skip
    return {
        "name": name,
        "value": None if sensitive else chain[0][1],
        "read_only": read_only,
        "config_source": chain[0][2],
        "is_sensitive": sensitive,
        "synonyms": synonyms,
        "config_type": _TYPES[setting.kind] if setting is not None else 0,
        "documentation": setting.text if setting is not None else None,
    }


def _text(setting: Setting[Any], value: Any) -> str:
    """A value as clients get it, in the form that Kafka writes into a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and value > 1e300:
        return "1.7976931348623157E308"
    return str(value)
