"""`kafkalog features`, with the output of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.unit.cli.conftest import Command

TV = "transaction.version"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with Broker(tmp_path / "data") as broker:
        yield broker.bootstrap_servers


def test_features_are_described(kafkalog: Command, servers: str) -> None:
    ran = kafkalog("features", "--bootstrap-server", servers)
    rows = {line.split("\t")[0]: line.split("\t")[1:4] for line in ran.out.splitlines()}
    assert rows[f"Feature: {TV}"] == [
        "SupportedMinVersion: 0", "SupportedMaxVersion: 2", "FinalizedVersionLevel: 2",
    ]  # fmt: skip
    assert rows["Feature: metadata.version"] == [
        "SupportedMinVersion: 3.3-IV3", "SupportedMaxVersion: 4.4-IV2",
        "FinalizedVersionLevel: 4.1-IV1",
    ]  # fmt: skip
    assert all("Epoch: " in line for line in ran.out.splitlines())
    (row,) = [
        row for row in kafkalog("features", "--json", "--bootstrap-server", servers).rows()
        if row["feature"] == TV
    ]  # fmt: skip
    assert (row["supported_min"], row["supported_max"], row["finalized"]) == (0, 2, 2)


def test_features_change(kafkalog: Command, servers: str) -> None:
    here = ("--bootstrap-server", servers)
    ran = kafkalog("features", "downgrade", f"{TV}=1", "--dry-run", *here)
    assert (ran.status, ran.out) == (0, f"{TV} can be downgraded to 1.\n")
    ran = kafkalog("features", "downgrade", "--feature", f"{TV}=1", *here)
    assert (ran.status, ran.out) == (0, f"{TV} was downgraded to 1.\n")
    ran = kafkalog("features", "upgrade", "--feature", f"{TV}=2", *here)
    assert (ran.status, ran.out) == (0, f"{TV} was upgraded to 2.\n")
    ran = kafkalog("features", "disable", TV, "--unsafe", *here)
    assert (ran.status, ran.out) == (0, f"{TV} was disabled.\n")
    ran = kafkalog("features", "upgrade", f"{TV}=9", "group.version=1", *here)
    assert ran.status == 1
    assert ran.out.splitlines()[1] == (
        f"Could not upgrade {TV} to 9. The update failed for all features since the following "
        f"feature had an error: Invalid update version 9 for feature {TV}. "
        "Local controller 1 only supports versions 0-2"
    )
    assert "2 out of 2 operation(s) failed." in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("upgrade",), "which feature?"),
        (("upgrade", TV), f"found '{TV}', wanted FEATURE=LEVEL"),
        (("upgrade", f"{TV}=x"), "wanted FEATURE=LEVEL"),
        (("upgrade", f"{TV}=99999"), "wanted FEATURE=LEVEL"),
        (("upgrade", f"{TV}=1", f"{TV}=2"), "twice"),
        (("disable", f"{TV}=1"), "wanted FEATURE"),
        (("describe", TV), "wanted no feature"),
    ],
)
def test_wrong_words_are_told(kafkalog: Command, words: tuple[str, ...], told: str) -> None:
    ran = kafkalog("features", *words, "--bootstrap-server", "127.0.0.1:1")
    assert ran.status == 2
    assert told in ran.err


def test_any_other_error_has_the_brokers_words_too(kafkalog: Command) -> None:
    with Peer({apis.UPDATE_FEATURES: (0, 1)}) as peer:
        refused = {"error_code": int(ErrorCode.FEATURE_UPDATE_FAILED), "error_message": "not now"}
        done = {"error_code": 0, "error_message": None}
        peer.on(apis.UPDATE_FEATURES, {**done, "results": [{"feature": TV, **refused}]})
        ran = kafkalog("features", "upgrade", f"{TV}=2", "--bootstrap-server", peer.servers)
    assert ran.out == f"Could not upgrade {TV} to 2. not now\n"
