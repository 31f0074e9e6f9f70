"""The README's Python runs exactly as printed."""

import re
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.broker import TestBroker


@pytest.fixture
def beside_demo_data(tmp_path, monkeypatch):
    """A working directory with a `demo-data` like the demo's, with one partition of it."""
    times = [1_387_900_000_000 + 1000 * i for i in range(45_000)]
    keys = [(b"B6", b"US", b"F9")[i % 3] for i in range(45_000)]
    (tmp_path / "demo-data").mkdir()
    (tmp_path / "data").mkdir()
    with kafkalog.Log(tmp_path / "demo-data" / "flights-0") as log:
        log.append_many([b"{}"] * 45_000, keys, times, compression="zstd", batch_bytes=1 << 16)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_readme_runs(root, beside_demo_data, capsys) -> None:
    for package in ("duckdb", "kafka", "polars", "pyarrow"):
        pytest.importorskip(package)
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (queue,) = [block for block in blocks if "ShareConsumer" in block]
    assert len(queue.splitlines()) == 10
    blocks.remove(queue)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    # The first block prints what it appended; the others leave what they counted.
    assert capsys.readouterr().out == "[(0, b'alice', b'3 apples')]\n"
    lines = [line for line in blocks[0].splitlines() if line]
    assert len(lines) <= 6
    assert names["table"].num_rows == 45_000
    assert dict(names["carriers"].iter_rows()) == {b"B6": 15_000, b"US": 15_000, b"F9": 15_000}
    assert names["log"].offset_at(1_387_908_000_000) == 8_000
    assert (names["sent"].topic, names["sent"].offset) == ("orders", 0)
    assert names["sales"] == [b"3 apples", b"2 pears"]
    assert names["topics"] == ["sales"]
    names["log"].close()


def test_the_work_queue_of_the_readme(root, tmp_path) -> None:
    """Each job is done once; the one that always fails is tried three times."""
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (queue,) = [block for block in blocks if "ShareConsumer" in block]
    done(queue, tmp_path)


def test_the_work_queue_of_the_clients_page(root, tmp_path) -> None:
    text = (root / "docs" / "clients.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (queue,) = [block for block in blocks if "ShareConsumer" in block]
    done(queue, tmp_path)


def done(queue: str, path: Path) -> None:
    """Run a work queue until the last of its jobs."""
    tried: list[bytes] = []

    def work(value: bytes) -> None:
        tried.append(value)
        if value == b"bad":
            raise ValueError
        if value == b"end":
            raise KeyboardInterrupt

    names = ("min.heartbeat.interval", "heartbeat.interval", "assignment.interval")
    config = {f"group.share.{name}.ms": 5 for name in names}
    with (
        TestBroker(path / "queue", config=config) as broker,
        kafkalog.Producer(broker.bootstrap_servers) as producer,
        kafkalog.Admin(broker.bootstrap_servers) as admin,
    ):
        for topic in ("jobs", "dead-jobs"):
            broker.create_topic(topic, 1)
        change = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs({("group", "workers"): change}).check()
        producer.send_many("jobs", [b"good", b"bad"]).result(60)

        def end_it() -> None:
            broker.wait_for_records("dead-jobs", 1)
            producer.send("jobs", b"end").result(60)

        ending = threading.Thread(target=end_it)
        ending.start()
        given = {"kafkalog": kafkalog, "servers": broker.bootstrap_servers, "work": work,
                 "producer": producer}  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            exec(compile(queue, "a page", "exec"), given)
        ending.join()
        assert tried == [b"good", b"bad", b"bad", b"bad", b"end"]
        assert [record.value for record in broker.records("dead-jobs")] == [b"bad"]
