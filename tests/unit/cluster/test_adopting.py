"""A directory of a single broker is adopted by a node of a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog.cluster.node.adoption import Adoption, carry_out
from kafkalog.errors import CorruptLog
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper.session import Create, open_session


def test_a_damaged_meta_properties_is_named_before_anything_is_written(tmp_path: Path) -> None:
    """Neither the tree nor the directory is changed."""
    home = tmp_path / "data"
    home.mkdir()
    meta = home / "meta.properties"
    meta.write_bytes(b"version=1\n")
    step = (Create("/told", b""),)
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as session:
        with pytest.raises(CorruptLog, match=re.escape(f"{meta}: node.id: found None")):
            carry_out(str(home), Adoption(1, "cluster", (), (step,), False), session)
        assert session.commit(step).done
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert meta.read_bytes() == b"version=1\n"
