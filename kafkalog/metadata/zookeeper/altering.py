"""Changes settings in the tree for clients (AlterConfigs, IncrementalAlterConfigs).

Pure.  A resource's settings are one znode; another one announces the change, and every broker
watches that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import BadZnode
from kafkalog.metadata.image import BROKER, TOPIC, MetadataImage
from kafkalog.metadata.requests import ResourceChange, SettingChanges
from kafkalog.metadata.zookeeper import entities
from kafkalog.metadata.zookeeper.loading import Znode
from kafkalog.metadata.zookeeper.session import Create, Operation, Set
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Altered", "Plan", "altered", "each", "mark_refused", "path_of"]

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


def path_of(one: ResourceChange) -> str:
    """The path of a resource's settings."""
    return entities.config_path(_entity(one))


def each(asked: SettingChanges) -> list[SettingChanges]:
    """One request per resource; a resource that occurs twice stays together, since the plan refuses
    that."""
    counts = Counter((one.kind, one.name) for one in asked.resources)
    return [SettingChanges([one] * counts[one.kind, one.name], asked.validate_only)
            for one in asked.resources]  # fmt: skip


def altered(
    image: MetadataImage, asked: SettingChanges, znode: Znode | None, plan: Plan,
    static: BrokerConfig,
) -> Altered:  # fmt: skip
    """The result for the resource of `asked`, as `each` yields it.

    `image`: the answering node's, with topics and settings; `znode`: the resource's.
    """
    one = asked.resources[0]
    known = image._replace(configs={**image.configs, (one.kind, one.name): _said(one, znode)})
    records, (result, *_) = plan(known, asked, static)
    write = bool(records) and not asked.validate_only
    return Altered(result, _operations(known, one, znode, records) if write else ())


def _said(one: ResourceChange, znode: Znode | None) -> dict[str, str]:
    try:
        return dict(entities.read_config(_entity(one), None if znode is None else znode.data))
    except BadZnode:  # what is written replaces it
        return {}


def _operations(
    known: MetadataImage, one: ResourceChange, znode: Znode | None, records: Sequence[Any]
) -> tuple[Operation, ...]:
    settings = dict(known.config(one.kind, one.name))
    for _, fields in records:
        settings.pop(fields["name"], None)
        if fields["value"] is not None:
            settings[fields["name"]] = fields["value"]
    path, data = path_of(one), entities.write_config(settings)
    config: Operation = Create(path, data) if znode is None else Set(path, data, znode.version)
    return config, Create(entities.CHANGE, entities.write_change(_entity(one)), sequence=True)


def mark_refused(result: Body) -> None:
    """The response if somebody else has changed the settings in between."""
    result["error_code"] = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    result["error_message"] = "The settings have changed since: try again."
