"""Feature levels: the current ones, and the changes of UpdateFeatures.

Pure, as plan.py.  Source: Kafka's FeatureControlManager; KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.config.broker import BrokerConfig
from kafkalog.kraft.plan import Plan, Record
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import BROKER, ELIGIBLE_REPLICAS, METADATA_VERSION, MetadataImage
from kafkalog.metadata.levels import KRAFT_VERSION, SUPPORTED
from kafkalog.metadata.requests import FeatureChange, FeatureChanges
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Ranges", "least_in_sync", "update_features"]

MIN_INSYNC = "min.insync.replicas"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""The kinds of a change."""
RECORDS_CHANGED = frozenset((7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33))
"""Levels of metadata.version at which records changed: none of them can be downgraded across.
Source: Kafka's MetadataVersion."""
PREFIX = "The update failed for all features since the following feature had an error: "
Ranges = Mapping[str, tuple[int, int]]
"""The lowest and the highest level of each feature that a node supports."""


def update_features(
    image: MetadataImage, asked: FeatureChanges, config: BrokerConfig, kraft_version: int,
    others: Mapping[str, Ranges] | None = None,
) -> Plan:  # fmt: skip
    """UpdateFeatures, all or nothing: one result, with the first error.
    `kraft_version`: of the metadata's quorum, which no request changes here; `others`: the other
    nodes, by the names that messages have for them."""
    changes = {one.name: one for one in asked.changes}
    records: list[Record] = []
    try:
        for change in changes.values():
            records.append(_changed(image, change, kraft_version, others or {}))
    except Refused as error:
        return Plan([], [{"error_code": int(error.code), "error_message": f"{PREFIX}{error}"}])
    if ELIGIBLE_REPLICAS in changes and changes[ELIGIBLE_REPLICAS].level:
        records += least_in_sync(image, config)
    return Plan([] if asked.validate_only else records, [{"error_code": 0, "error_message": None}])


def _changed(
    image: MetadataImage, change: FeatureChange, kraft_version: int, others: Mapping[str, Ranges]
) -> Record:
    """The record of one change.  Raises: Refused."""
    name, level, kind = change
    current = kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(change, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(change, "A feature version cannot be less than 0.")
    here = kraft_version if name == KRAFT_VERSION else None
    own: Ranges = SUPPORTED if here is None else {name: (here, here)}
    for node, ranges in {f"Local controller {image.node_id}": own, **others}.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            versions = f"{low}-{high}" if low < high else str(low)
            raise _invalid(
                change, f"{node} only supports versions {versions}" if high else
                f"{node} does not support this feature.",
            )  # fmt: skip
    if level < current and kind == UPGRADE:
        raise _invalid(
            change,
            "Can't downgrade the version of this feature without setting the upgrade type "
            "to either safe or unsafe downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(change, "Can't downgrade to a newer version.")
    if name not in SUPPORTED:
        raise _invalid(change, f"Feature {name} not found.")
    if name == METADATA_VERSION and RECORDS_CHANGED & {*range(level + 1, current + 1)}:
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because "
            "it might delete metadata information."
        )
        what = f"Unsupported metadata.version downgrade from {current} to {level}"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{what}. {why}")
    return "FeatureLevelRecord", {"name": name, "feature_level": level}


def _invalid(change: FeatureChange, why: str) -> Refused:
    what = f"Invalid update version {change.level} for feature {change.name}"
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{what}. {why}")


def least_in_sync(image: MetadataImage, config: BrokerConfig) -> list[Record]:
    """With eligible leader replicas it belongs to the cluster, and no broker has its own."""
    found: list[Record] = []
    if MIN_INSYNC not in image.config(BROKER, ""):
        least = str(config.topic.min_insync_replicas)
        found.append(("ConfigRecord", _setting("", least)))
    for kind, name in image.configs:
        if kind == BROKER and name and MIN_INSYNC in image.config(kind, name):
            found.append(("ConfigRecord", _setting(name, None)))
    return found


def _setting(broker: str, value: str | None) -> dict[str, object]:
    where = {"resource_type": BROKER, "resource_name": broker}
    return {**where, "name": MIN_INSYNC, "value": value}
