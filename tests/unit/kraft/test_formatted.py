"""Directories made by Kafka's `kafka-storage format` on which no broker has run yet: the metadata
starts with what they were formatted with, and that file does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import Broker
from kafkalog.disk import layout
from kafkalog.errors import ArgumentError, CorruptLog
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import render_snapshot
from kafkalog.metadata.image import empty_image
from kafkalog.security.scram import Credential

Record = tuple[str, dict[str, Any]]
BOB: Record = ("UserScramCredentialRecord", {
    "name": "bob", "mechanism": 1, "salt": b"salt", "stored_key": b"k", "server_key": b"k",
    "iterations": 4096})  # fmt: skip


def levels(**wanted: int) -> list[Record]:
    """FeatureLevelRecords by feature name, with underscores for dots."""
    return [("FeatureLevelRecord", {"name": name.replace("_", "."), "feature_level": level})
            for name, level in wanted.items()]  # fmt: skip


FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
PLACES = pytest.mark.parametrize("place", [layout.BOOTSTRAP, FIRST_SNAPSHOT])
"""Files that `kafka-storage format` writes: in Kafka 4.1, and in Kafka 4.4."""


def formatted(path: Path, records: list[Record], place: str = layout.BOOTSTRAP) -> bytes:
    """Format a directory as Kafka does for a static quorum; returns the bytes of `place`."""
    path.mkdir()
    meta = layout.new_meta_properties(1)._replace(cluster_id="AAAAAAAAAAAAAAAAAAAAAg")
    (path / layout.META_PROPERTIES).write_bytes(layout.render_meta_properties(meta))
    image = empty_image("", 1)
    values = [encode(name, fields, image) for name, fields in records]
    data = render_snapshot(values, 0, (0, 1_700_000_000_000))
    (path / place).parent.mkdir(exist_ok=True)
    (path / place).write_bytes(data)
    return data


@PLACES
def test_the_credentials_of_a_directory_are_kept(tmp_path: Path, place: str) -> None:
    """The users that it was formatted with are there from the first start on."""
    path = tmp_path / "d"
    data = formatted(path, [*levels(metadata_version=27), BOB], place)
    for _ in range(2):
        with Broker(path) as broker:
            assert broker._node.image.scram == {("bob", 1): Credential(b"salt", b"k", b"k", 4096)}
        assert (path / place).read_bytes() == data


@PLACES
def test_its_levels_are_kept(tmp_path: Path, place: str) -> None:
    """min.insync.replicas is set only with eligible leader replicas."""
    newer = {"eligible_leader_replicas_version": 1, "share_version": 2, "streams_version": 1}
    for level, more in ((25, {}), (33, newer)):
        path = tmp_path / str(level)
        data = formatted(path, levels(metadata_version=level, **more), place)
        with Broker(path) as broker:
            broker.store.create_topic("t")
        with Broker(path) as broker:
            assert broker.store.topics == ("t",)
            image = broker._node.image
            found = {"metadata.version": level}
            found.update({name.replace("_", "."): level for name, level in more.items()})
            assert image.features == found
            assert image.config(4, "") == ({"min.insync.replicas": "1"} if more else {})
        assert (path / place).read_bytes() == data


def test_without_a_level_it_has_ours(tmp_path: Path) -> None:
    path = tmp_path / "d"
    formatted(path, [])
    with Broker(path) as broker:
        assert broker._node.image.features["metadata.version"] == 27


def test_unknown_feature_levels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d"
    formatted(path, levels(metadata_version=99))
    with pytest.raises(ArgumentError, match=r"metadata.version: found 99, wanted 7"):
        Broker(path)


def test_a_damaged_one_that_says_more_is_not_replaced(tmp_path: Path) -> None:
    """Its credentials would be lost. A file without more content than ours is written again, as
    after a power failure during a first start."""
    path = tmp_path / "d"
    data = formatted(path, [BOB, *levels(metadata_version=27)])
    torn = data[:-10]
    (path / layout.BOOTSTRAP).write_bytes(torn)
    with pytest.raises(CorruptLog, match=layout.BOOTSTRAP):
        Broker(path)
    assert (path / layout.BOOTSTRAP).read_bytes() == torn
    (path / layout.BOOTSTRAP).write_bytes(b"")
    Broker(path).close()
