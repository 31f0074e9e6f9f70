"""Changes of settings by clients (AlterConfigs, IncrementalAlterConfigs), and of features.

Steps, as defined in kafkalog.controller.active; `altered` is pure, and also for brokers that change
their own settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.records import Settings, SettingsChange
from kafkalog.metadata import configs
from kafkalog.metadata.image import BROKER, MetadataImage
from kafkalog.metadata.requests import ResourceChange, SettingChanges
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Altered", "Plan", "alter_configs", "altered", "each", "incremental_alter_configs",
    "mark_refused", "update_features",
]  # fmt: skip

Body = dict[str, Any]
Records = list[tuple[str, Any]]
Plan = Callable[[MetadataImage, SettingChanges, BrokerConfig], tuple[Records, list[Body]]]
"""A change of kafkalog.metadata.configs."""


class Altered(NamedTuple):
    """The result for one resource."""

    result: Body
    """The response's entry."""
    change: SettingsChange | None
    """None: there is nothing to write."""


def each(asked: SettingChanges) -> list[SettingChanges]:
    """One request per resource; a resource that occurs twice stays together, since the plan refuses
    that."""
    counts = Counter((one.kind, one.name) for one in asked.resources)
    return [SettingChanges([one] * counts[one.kind, one.name], asked.validate_only)
            for one in asked.resources]  # fmt: skip


def altered(
    image: MetadataImage, asked: SettingChanges, settings: Mapping[str, str], plan: Plan,
    static: BrokerConfig,
) -> Altered:  # fmt: skip
    """The result for the resource of `asked`, as `each` returns it.

    `image`: the answering node's, with topics; `settings`: the resource's current ones.
    """
    one = asked.resources[0]
    known = image._replace(configs={**image.configs, (one.kind, one.name): settings})
    records, (result, *_) = plan(known, asked, static)
    if not records or asked.validate_only:
        return Altered(result, None)
    changes = {fields["name"]: fields["value"] for _, fields in records}
    return Altered(result, SettingsChange(one.kind, one.name, changes))


def mark_refused(result: Body) -> None:
    """The response if somebody else has changed the settings in between."""
    result["error_code"] = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    result["error_message"] = "The settings have changed since: try again."


def alter_configs(active: Active, asked: SettingChanges, version: int) -> Steps[Body]:
    """AlterConfigs."""
    return (yield from _alter(active, asked, configs.alter_configs))


def incremental_alter_configs(active: Active, asked: SettingChanges, version: int) -> Steps[Body]:
    """IncrementalAlterConfigs."""
    return (yield from _alter(active, asked, configs.incremental_alter_configs))


def _alter(active: Active, asked: SettingChanges, plan: Plan) -> Steps[Body]:
    """One result per resource; each is changed by itself."""
    found = yield Settings(tuple((one.kind, one.name) for one in asked.resources))
    image = active.known()
    done = [
        altered(_image(active, image, one.resources[0]), one, settings, plan, active.options.config)
        for one, settings in zip(each(asked), found, strict=True)
    ]
    changed = [one for one in done if one.change is not None]
    outcomes = yield [one.change for one in changed]
    for one, outcome in zip(changed, outcomes, strict=True):
        if not outcome.done:
            mark_refused(one.result)
    return {"responses": [one.result for one in done]}


def _image(active: Active, image: MetadataImage, one: ResourceChange) -> MetadataImage:
    """The image as the plans expect it: for a broker's settings, with that broker's id."""
    node = active.context.claim.broker
    if one.kind == BROKER:
        brokers = {str(number): number for number in active.context.brokers}
        node = brokers.get(one.name, node)
    return image._replace(node_id=node)


def update_features(active: Active, request: Any, version: int) -> Steps[Body]:
    """UpdateFeatures: brokers on ZooKeeper have no features to change."""
    yield ()
    error = int(ErrorCode.INVALID_REQUEST)
    message = "The brokers of a cluster on ZooKeeper support no feature of this name."
    names = [one.feature for one in request.feature_updates]
    rows = [{"feature": name, "error_code": error, "error_message": message} for name in names]
    if version < 2 or not rows:
        return {"error_code": 0, "error_message": None, "results": rows}
    return {"error_code": error, "error_message": message, "results": []}
