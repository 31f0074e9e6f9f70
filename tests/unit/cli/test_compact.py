"""`kafkalog compact`."""

import json

import pytest

from kafkalog import Broker, Log, cli
from kafkalog.directory.manager import Manager
from tests.support.raw import Raw
from tests.support.trees import fingerprint


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


WORDS = ["--set", "cleanup.policy=compact"]


def test_a_topic(data, capsys):
    words = ["compact", "--dir", str(data), "--topic", "accounts", "--roll", "--execute"]
    assert cli.main([*words, *WORDS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["partition", "records", "left"]
    assert [line.split()[:3] for line in lines[1:]] == [["0", "200", "20"], ["1", "200", "20"]]
    assert [count(data, partition) for partition in (0, 1)] == [20, 20]


def test_nothing_is_done_before_it_is_asked_for(data, capsys):
    """It reports the offset it would reach and how many records have no key; it writes nothing."""
    with Manager(data) as manager:
        manager.get("accounts", 1).append_many([b"no key"] * 3)
    before = fingerprint(data)
    words = ["compact", "--dir", str(data), "--topic", "accounts", "--roll", *WORDS]
    assert cli.main(words) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:3]]
    assert rows == [["0", "200", "200", "0"], ["1", "203", "203", "3"]]
    assert cli.main([*words, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["records"], row["without_key"]) for row in told] == [(200, 0), (203, 3)]
    assert fingerprint(data) == before


def test_a_topic_that_is_not_compacted_is_left_alone(data, tmp_path, capsys):
    """Neither the default nor the metadata's cleanup.policy has compact."""
    words = ["compact", "--dir", str(data), "--topic", "accounts", "--roll", "--execute"]
    assert cli.main(words) == 2
    assert "cleanup.policy: found delete, wanted one with compact" in capsys.readouterr().err
    assert count(data, 0) == 200
    served = tmp_path / "served"
    with Broker(served) as broker, Raw(broker.bootstrap_servers) as client:
        client.create("kept")
        client.produce("kept", b"1", b"2", key=None)
    words = ["compact", "--dir", str(served), "--topic", "kept", "--roll", "--execute"]
    assert cli.main(words) == 2
    assert "in its metadata" in capsys.readouterr().err
    with Log(served / "kept-0", "r") as log:
        assert [record.value for record in log] == [b"1", b"2"]


def test_one_partition_as_json(data, capsys):
    words = ["compact", "--dir", str(data), "--topic", "accounts", "--partition", "1", "--json"]
    assert cli.main([*words, *WORDS, "--execute", "--max-bytes-per-second", "10000000"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["topic"], told["partition"], told["rounds"]) == ("accounts", 1, 1)
    assert 20 <= count(data, 1) < count(data, 0) == 200


def test_wrong_use(data, capsys):
    words = ["compact", "--dir", str(data), "--topic"]
    assert cli.main([*words, "account"]) == 2
    assert "did you mean accounts?" in capsys.readouterr().err
    assert cli.main([*words, "accounts", "--set", "cleanup.policy=delete"]) == 2
    assert count(data, 0) == 200
