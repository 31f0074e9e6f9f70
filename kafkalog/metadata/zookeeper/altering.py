"""Changes settings in the tree for clients (AlterConfigs, IncrementalAlterConfigs).

Pure.  A resource's settings are one znode, a topic's are two (`own_settings`); another one
announces the change, and every broker watches that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import BadZnode
from kafkalog.metadata.image import BROKER, TOPIC, MetadataImage
from kafkalog.metadata.requests import ResourceChange, SettingChanges
from kafkalog.metadata.zookeeper import entities, own_settings
from kafkalog.metadata.zookeeper.loading import Znode
from kafkalog.metadata.zookeeper.session import Create, Delete, Operation, Set
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Altered", "Plan", "altered", "each", "mark_refused", "own_change", "paths_of"]

Body = dict[str, Any]
Records = list[tuple[str, Any]]
Plan = Callable[[MetadataImage, SettingChanges, BrokerConfig], tuple[Records, list[Body]]]
"""A change of kafkalog.metadata.configs."""
_KINDS = {TOPIC: "topics", BROKER: "brokers"}


class Altered(NamedTuple):
    """The result for one resource."""

    result: Body
    """The response's entry."""
    operations: tuple[Operation, ...]
    """Operations to carry out, all or none; empty: there is nothing to do."""


def _entity(one: ResourceChange) -> entities.Entity:
    return _KINDS.get(one.kind, "topics"), one.name or entities.DEFAULT


def paths_of(one: ResourceChange) -> tuple[str, ...]:
    """The paths of a resource's settings: Kafka's znode, and for a topic our own."""
    kind, name = _entity(one)
    return (
        own_settings.paths_of(name) if kind == "topics" else (entities.config_path((kind, name)),)
    )


def each(asked: SettingChanges) -> list[SettingChanges]:
    """One request per resource; a resource that occurs twice stays together, since the plan refuses
    that."""
    counts = Counter((one.kind, one.name) for one in asked.resources)
    return [SettingChanges([one] * counts[one.kind, one.name], asked.validate_only)
            for one in asked.resources]  # fmt: skip


def altered(
    image: MetadataImage, asked: SettingChanges, znodes: Sequence[Znode | None], plan: Plan,
    static: BrokerConfig,
) -> Altered:  # fmt: skip
    """The result for the resource of `asked`, as `each` yields it.

    `image`: the answering node's, with topics and settings; `znodes`: the resource's, in the order
    of `paths_of`.
    """
    one = asked.resources[0]
    topic = image.topics.get(one.name) if one.kind == TOPIC else None
    topic_id = None if topic is None else topic.id
    said = _said(one, topic_id, znodes)
    known = image._replace(configs={**image.configs, (one.kind, one.name): said})
    records, (result, *_) = plan(known, asked, static)
    write = bool(records) and not asked.validate_only
    return Altered(result, _operations(said, one, topic_id, znodes, records) if write else ())


def _said(
    one: ResourceChange, topic_id: UUID | None, znodes: Sequence[Znode | None]
) -> dict[str, str]:
    config, *own = [None if znode is None else znode.data for znode in znodes]
    found: dict[str, str] = {}
    with suppress(BadZnode):  # what is written replaces it
        found |= entities.read_config(_entity(one), config)
    for data in own:
        with suppress(BadZnode):
            found |= own_settings.read(one.name, topic_id, data)
    return found


def _operations(
    said: Mapping[str, str], one: ResourceChange, topic_id: UUID | None,
    znodes: Sequence[Znode | None], records: Sequence[Any],
) -> tuple[Operation, ...]:  # fmt: skip
    settings = dict(said)
    for _, fields in records:
        settings.pop(fields["name"], None)
        if fields["value"] is not None:
            settings[fields["name"]] = fields["value"]
    others: tuple[Operation, ...] = ()
    if topic_id is not None:
        settings, own = own_settings.split(settings)
        others = own_change(one.name, topic_id, own, znodes[1])
    znode, path, data = znodes[0], paths_of(one)[0], entities.write_config(settings)
    config: Operation = Create(path, data) if znode is None else Set(path, data, znode.version)
    told = entities.write_change(_entity(one))
    return config, *others, Create(entities.CHANGE, told, sequence=True)


def own_change(
    topic: str, topic_id: UUID, settings: Mapping[str, str], znode: Znode | None
) -> tuple[Operation, ...]:
    """Gives a topic these settings that Kafka does not know; `znode`: those that it has."""
    path, data = own_settings.path_of(topic), own_settings.write(topic_id, settings)
    if znode is None:
        return (Create(path, data),) if settings else ()
    if not settings:
        return (Delete(path, znode.version),)
    return () if znode.data == data else (Set(path, data, znode.version),)


def mark_refused(result: Body) -> None:
    """The response if somebody else has changed the settings in between."""
    result["error_code"] = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    result["error_message"] = "The settings have changed since: try again."
