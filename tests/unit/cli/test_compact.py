"""`kafkalog compact`."""

import json

import pytest

from kafkalog import cli
from kafkalog.directory.manager import Manager


@pytest.fixture
def data(tmp_path):
    """A directory with a topic of two partitions, 200 records of 20 keys in each."""
    path = tmp_path / "data"
    with Manager(path, topic_config={"segment.bytes": 2_000}) as manager:
        manager.create_topic("accounts", 2)
        for partition in (0, 1):
            log = manager.get("accounts", partition)
            keys = [b"%d" % (i % 20) for i in range(200)]
            log.append_many([b"v"] * 200, keys=keys, batch_bytes=300)
    return path


def count(path, partition):
    with Manager(path, mode="r") as manager:
        return len(list(manager.get("accounts", partition).read()))


def test_a_topic(data, capsys):
    assert cli.main(["compact", "--dir", str(data), "--topic", "accounts", "--roll"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["partition", "records", "left"]
    assert [line.split()[:3] for line in lines[1:]] == [["0", "200", "20"], ["1", "200", "20"]]
    assert [count(data, partition) for partition in (0, 1)] == [20, 20]


def test_one_partition_as_json(data, capsys):
    words = ["compact", "--dir", str(data), "--topic", "accounts", "--partition", "1", "--json"]
    assert cli.main([*words, "--max-bytes-per-second", "10000000"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["topic"], told["partition"], told["rounds"]) == ("accounts", 1, 1)
    assert 20 <= count(data, 1) < count(data, 0) == 200


def test_wrong_use(data, capsys):
    words = ["compact", "--dir", str(data), "--topic"]
    assert cli.main([*words, "account"]) == 2
    assert "did you mean accounts?" in capsys.readouterr().err
    assert cli.main([*words, "accounts", "--set", "cleanup.policy=delete"]) == 2
    assert count(data, 0) == 200
