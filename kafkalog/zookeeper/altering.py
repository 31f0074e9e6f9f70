"""The znodes of settings, as they are changed for clients.

Pure.  A resource's settings are one znode, a topic's are two (`own_settings`); another one
announces the change, and every broker watches that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from kafkalog.errors import BadZnode
from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.zookeeper import entities, own_settings
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Create, Delete, Operation, Set

__all__ = ["entity_operations", "operations", "own_change", "paths_of", "settings_in"]

_KINDS = {TOPIC: "topics", BROKER: "brokers"}


def _entity(kind: int, name: str) -> entities.Entity:
    return _KINDS.get(kind, "topics"), name or entities.DEFAULT


def paths_of(kind: int, name: str) -> tuple[str, ...]:
    """The paths of a resource's settings: Kafka's znode, and for a topic our own."""
    entity = _entity(kind, name)
    if entity[0] == "topics":
        return own_settings.paths_of(entity[1])
    return (entities.config_path(entity),)


def settings_in(
    kind: int, name: str, topic_id: UUID | None, znodes: Sequence[Znode | None]
) -> dict[str, str]:
    """A resource's settings, from its znodes in the order of `paths_of`; one that is unreadable
    counts as empty, for what is written replaces it."""
    config, *own = [None if znode is None else znode.data for znode in znodes]
    found: dict[str, str] = {}
    with suppress(BadZnode):
        found |= entities.read_config(_entity(kind, name), config)
    for data in own:
        with suppress(BadZnode):
            found |= own_settings.read(name, topic_id, data)
    return found


def operations(
    kind: int, name: str, topic_id: UUID | None, znodes: Sequence[Znode | None],
    changes: Mapping[str, str | None],
) -> tuple[Operation, ...]:  # fmt: skip
    """Changes a resource's settings (None: one is removed), if the znodes are as they were read."""
    settings = settings_in(kind, name, topic_id, znodes)
    for key, value in changes.items():
        settings.pop(key, None)
        if value is not None:
            settings[key] = value
    others: tuple[Operation, ...] = ()
    if topic_id is not None:
        settings, own = own_settings.split(settings)
        others = own_change(name, topic_id, own, znodes[1])
    config, told = entity_operations(_entity(kind, name), znodes[0], settings)
    return config, *others, told


def entity_operations(
    entity: entities.Entity, znode: Znode | None, settings: Mapping[str, str]
) -> tuple[Operation, Operation]:
    """Gives an entity these settings, if the znode is as it was read, and announces it."""
    path, data = entities.config_path(entity), entities.write_config(settings)
    config: Operation = Create(path, data) if znode is None else Set(path, data, znode.version)
    return config, Create(entities.CHANGE, entities.write_change(entity), sequence=True)


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
