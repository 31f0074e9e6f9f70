"""Changes and refusals of UpdateFeatures, with Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog.client.calls.features import UPGRADE, describe_features, update_features
from kafkalog.client.link.cluster import Cluster
from kafkalog.metadata.levels import LEVEL, LEVEL_MIN, LEVEL_NEW
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

OK = ErrorCode.NONE
BAD = ErrorCode.INVALID_UPDATE_VERSION
PREFIX = "The update failed for all features since the following feature had an error: "
TV = "transaction.version"
IN_RANGE = f"Local controller 1 only supports versions {LEVEL_MIN}-{LEVEL}"


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Raw]:
    with Broker(tmp_path / "data") as broker, Raw(broker.bootstrap_servers) as connection:
        yield connection


def change(raw: Raw, *changes: tuple[str, int, int], dry: bool = False) -> tuple[int, str | None]:
    """The error and the message of UpdateFeatures version 2."""
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in changes
    ]
    found = raw.call(apis.UPDATE_FEATURES, 2, feature_updates=updates, validate_only=dry)
    return found.error_code, found.error_message


def levels(raw: Raw) -> dict[str, int]:
    who = {"client_software_name": "x", "client_software_version": "1"}
    found = raw.call(apis.API_VERSIONS, 4, **who)
    return {one.name: one.max_version_level for one in found.finalized_features}


def test_levels_go_down_and_up(raw: Raw) -> None:
    """A dry run changes nothing; the same level again is neither a change nor an error."""
    before = levels(raw)
    assert before[TV] == 2
    assert change(raw, (TV, 1, 2), dry=True) == (OK, None)
    assert levels(raw) == before
    assert change(raw, (TV, 1, 2)) == (OK, None)
    assert levels(raw)[TV] == 1
    assert change(raw, (TV, 1, 1)) == (OK, None)
    assert change(raw, (TV, 0, 3)) == (OK, None)
    assert TV not in levels(raw)
    assert change(raw, (TV, 2, 1), ("metadata.version", LEVEL_NEW, 1)) == (OK, None)
    assert levels(raw) == before
    assert change(raw, ("metadata.version", LEVEL, 1)) == (OK, None)
    assert levels(raw) == {**before, "metadata.version": LEVEL}


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        (TV, 3, 1, "Local controller 1 only supports versions 0-2"),
        (TV, 1, 1, "Can't downgrade the version of this feature without setting the upgrade type "
         "to either safe or unsafe downgrade."),
        (TV, -1, 2, "A feature version cannot be less than 0."),
        (TV, 1, 0, "The controller does not support the given upgrade type."),
        ("group.version", 2, 1, "Local controller 1 only supports versions 0-1"),
        ("share.version", 3, 1, "Local controller 1 only supports versions 0-2"),
        ("streams.version", 2, 1, "Local controller 1 only supports versions 0-1"),
        ("none.such", 0, 2, "Feature none.such not found."),
        ("metadata.version", LEVEL + 1, 1, IN_RANGE),
        ("metadata.version", 0, 2, IN_RANGE),
    ],
)  # fmt: skip
def test_refusals_give_a_reason(raw: Raw, name: str, level: int, kind: int, why: str) -> None:
    """None of several features is changed."""
    before = levels(raw)
    told = f"{PREFIX}Invalid update version {level} for feature {name}. {why}"
    assert change(raw, ("eligible.leader.replicas.version", 0, 2), (name, level, kind)) == (
        BAD, told,
    )  # fmt: skip
    assert levels(raw) == before


def test_metadata_are_not_taken_back(raw: Raw) -> None:
    refusing = (
        "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    unsafe = "Unsafe metadata downgrade is not supported in this version."
    for kind, why in ((2, refusing), (3, unsafe)):
        told = f"{PREFIX}Unsupported metadata.version downgrade from {LEVEL_NEW} to 20. {why}"
        assert change(raw, ("metadata.version", 20, kind)) == (BAD, told)


@pytest.mark.parametrize("kind", [2, 3])
@pytest.mark.parametrize(("high", "low"), [(28, 27), (29, 27), (31, 30), (26, 23)])
def test_a_downgrade_without_record_changes_is_allowed(
    raw: Raw, high: int, low: int, kind: int
) -> None:
    """Kafka's MetadataVersion lists the levels at which records changed."""
    if high > LEVEL_NEW:
        assert change(raw, ("metadata.version", high, 1)) == (OK, None)
        assert change(raw, ("metadata.version", low, 1))[0] == BAD
    assert change(raw, ("metadata.version", low, kind), dry=True) == (OK, None)
    assert change(raw, ("metadata.version", low, kind)) == (OK, None)
    assert levels(raw)["metadata.version"] == low


@pytest.mark.parametrize("changed", [30, 32, 33])
def test_a_downgrade_with_record_changes_is_refused(raw: Raw, changed: int) -> None:
    assert change(raw, ("metadata.version", LEVEL, 1)) == (OK, None)
    assert change(raw, ("metadata.version", changed - 1, 2))[0] == BAD
    assert levels(raw)["metadata.version"] == LEVEL


def test_older_versions_name_each_feature(raw: Raw) -> None:
    """The first version has only one kind of downgrade."""
    asked = [{"feature": TV, "max_version_level": 1, "allow_downgrade": True}]
    found = raw.call(apis.UPDATE_FEATURES, 0, feature_updates=asked)
    (one,) = found.results
    assert (found.error_code, one.feature, one.error_code, one.error_message) == (
        OK, TV, OK, "NONE",
    )  # fmt: skip
    asked = [{"feature": TV, "max_version_level": 9, "upgrade_type": 1}]
    found = raw.call(apis.UPDATE_FEATURES, 1, feature_updates=asked, validate_only=False)
    assert (found.error_code, found.results) == (BAD, [])


def test_a_restart_keeps_the_levels_and_clients_obey_them(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """Clients and the transaction coordinator see the lower level after the restart."""
    with Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap_servers) as cluster:
        assert update_features(cluster, {TV: 1}, 2) == {TV: None}
        assert update_features(cluster, {TV: 9}, UPGRADE).errors.keys() == {TV}
    with Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap_servers) as cluster:
        found = describe_features(cluster)
        told = {one.name: (one.lowest, one.highest, one.level) for one in found.features}
        assert told[TV] == (0, 2, 1)
        assert found.epoch > 0
        assert broker._node.transactions.core._outside.level() == 1


def test_eligible_replicas_want_the_clusters_own_least_in_sync(raw: Raw) -> None:
    """Turning them on sets it, as in Kafka, and removes every broker's own value."""
    elr, name = "eligible.leader.replicas.version", "min.insync.replicas"
    assert change(raw, (elr, 0, 2)) == (OK, None)
    assert raw.alter(4, "", min_insync_replicas=None).error_code == OK
    assert raw.alter(4, "1", min_insync_replicas="1").error_code == OK
    assert change(raw, (elr, 1, 1)) == (OK, None)
    assert raw.describe(4, "1")[name].config_source == 3
    assert raw.alter(4, "", min_insync_replicas=None).error_code == ErrorCode.INVALID_CONFIG
