"""The levels of a cluster's features, and changes of them.  Source: KIP-584, KIP-778."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code, failure
from kafkalog.client.link.software import software
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "SAFE_DOWNGRADE",
    "UNSAFE_DOWNGRADE",
    "UPGRADE",
    "Feature",
    "Features",
    "describe_features",
    "update_features",
]

FEATURES_SINCE = 3
"""The first version of ApiVersions with features."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""The kinds of updates."""


class Feature(NamedTuple):
    """A feature: the levels that the broker supports, and the level of the cluster."""

    name: str
    lowest: int
    highest: int
    level: int
    """0: disabled."""


class Features(NamedTuple):
    """A broker's view of its cluster's features."""

    features: tuple[Feature, ...]
    """Sorted by name."""
    epoch: int
    """Epoch of the metadata with these levels; -1: unknown."""


def describe_features(cluster: Cluster) -> Features:
    """The features of a cluster.

    Raises: UnsupportedVersion for a broker before 2.4; what a broker answers.
    """

    def step() -> Features:
        connection = cluster.controller()
        version = connection.version_of(apis.API_VERSIONS)
        if version < FEATURES_SINCE:
            raise errors.UnsupportedVersion(
                f"{connection.address}: ApiVersions: version {version}, wanted {FEATURES_SINCE} "
                "for features"
            )
        answer = connection.call(apis.API_VERSIONS, software(), version)
        has = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        on = {one.name: one.max_version_level for one in answer.finalized_features}
        found = [
            Feature(name, *has.get(name, (0, 0)), on.get(name, 0)) for name in sorted({*has, *on})
        ]
        return Features(tuple(found), answer.finalized_features_epoch)

    return cluster.retrying(step)


def update_features(
    cluster: Cluster, levels: Mapping[str, int], kind: int, validate_only: bool = False
) -> Results[str, None]:
    """Change the levels of features; brokers before Kafka 4 change each on its own, later ones all
    or none.

    `kind`: UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE; `validate_only`: change nothing.

    Failures: InvalidUpdateVersion; what a broker answers.
    Raises: UnsupportedVersion for a broker before 2.7; what a broker answers for all.
    """

    def step() -> dict[str, errors.KafkalogError]:
        connection = cluster.controller()
        version = connection.version_of(apis.UPDATE_FEATURES)
        if validate_only and not version:
            raise errors.UnsupportedVersion(
                f"{connection.address}: UpdateFeatures: version 0, wanted 1 to change nothing"
            )
        how = {"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}
        body = {
            "timeout_ms": cluster.options.request_timeout_ms,
            "feature_updates": [
                {"feature": name, "max_version_level": level, **how}
                for name, level in levels.items()
            ],
        }
        if version:
            body["validate_only"] = validate_only
        answer = connection.call(apis.UPDATE_FEATURES, body, version)
        if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            return {name: _failed(name, answer) for name in levels}
        check_code(answer.error_code, "UpdateFeatures", answer.error_message)
        return {one.feature: _failed(one.feature, one) for one in answer.results if one.error_code}

    wrong = cluster.retrying(step)
    return Results({name: None for name in levels if name not in wrong}, wrong)


def _failed(name: str, row: Any) -> errors.KafkalogError:
    return failure(row.error_code, f"feature {name!r}", row.error_message)
