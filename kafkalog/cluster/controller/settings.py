"""Changes of settings by clients (AlterConfigs, IncrementalAlterConfigs), and of features.

Steps, as defined in kafkalog.cluster.controller.steps.
"""

from __future__ import annotations

from typing import Any

from kafkalog.cluster.controller.events import Read
from kafkalog.cluster.controller.steps import Looks, Office, Steps
from kafkalog.metadata import configs
from kafkalog.metadata.image import BROKER, MetadataImage, Topic
from kafkalog.metadata.requests import ResourceChange, SettingChanges
from kafkalog.metadata.zookeeper import altering
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["alter_configs", "incremental_alter_configs", "update_features"]

Body = dict[str, Any]


def alter_configs(office: Office, asked: SettingChanges, version: int) -> Steps[Body]:
    """AlterConfigs."""
    return (yield from _alter(office, asked, configs.alter_configs))


def incremental_alter_configs(office: Office, asked: SettingChanges, version: int) -> Steps[Body]:
    """IncrementalAlterConfigs."""
    return (yield from _alter(office, asked, configs.incremental_alter_configs))


def _alter(office: Office, asked: SettingChanges, plan: altering.Plan) -> Steps[Body]:
    """One result per resource; each is changed by itself."""
    paths = [altering.paths_of(one) for one in asked.resources]
    found = iter((yield Looks([Read(path) for those in paths for path in those])))
    done = [
        altering.altered(
            _image(office, each.resources[0]), each, [next(found) for _ in those], plan,
            office.options.config,
        )
        for each, those in zip(altering.each(asked), paths, strict=True)
    ]  # fmt: skip
    writes = [(those[0], one) for those, one in zip(paths, done, strict=True) if one.operations]
    outcomes = yield [office.context.change(path, *one.operations) for path, one in writes]
    for (_, one), outcome in zip(writes, outcomes, strict=True):
        if not outcome.done:
            altering.mark_refused(one.result)
    return {"responses": [one.result for one in done]}


def _image(office: Office, one: ResourceChange) -> MetadataImage:
    """The image as a standalone node's plan expects it; for a broker, with that broker's id."""
    known = office.context
    topics = {name: Topic(name, topic_id, {}) for name, topic_id in known.ids.items()}
    node = known.reign.broker
    if one.kind == BROKER and one.name.isdecimal() and int(one.name) in known.brokers:
        node = int(one.name)
    return office.image._replace(topics=topics, node_id=node)


def update_features(office: Office, request: Any, version: int) -> Steps[Body]:
    """UpdateFeatures: brokers on ZooKeeper have no features to change."""
    yield Looks(())
    error = int(ErrorCode.INVALID_REQUEST)
    message = "The brokers of a cluster on ZooKeeper support no feature of this name."
    names = [one.feature for one in request.feature_updates]
    rows = [{"feature": name, "error_code": error, "error_message": message} for name in names]
    if version < 2 or not rows:
        return {"error_code": 0, "error_message": None, "results": rows}
    return {"error_code": error, "error_message": message, "results": []}
