"""A broker, as a newcomer types it."""

import pydoc

import pytest

import kafkalog
from kafkalog.server.network.listeners import named


def test_a_listener_needs_no_name(tmp_path):
    with kafkalog.Broker(tmp_path, listeners="127.0.0.1:0") as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
    assert named(["[::1]:1", "EXTRA://h:2"]) == ["PLAINTEXT://[::1]:1", "EXTRA://h:2"]
    with pytest.raises(kafkalog.errors.InvalidSetting, match="wanted NAME://host:port"):
        kafkalog.Broker(tmp_path / "d", listeners="9092")


def test_its_path_is_in_its_help(tmp_path):
    assert "The data directory, absolute." in pydoc.render_doc(kafkalog.Broker)
    with kafkalog.Broker(tmp_path / "d") as broker:
        assert broker.path == str(tmp_path / "d")
