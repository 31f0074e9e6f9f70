"""The plugin in other people's tests: each test here runs its own pytest."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]
ENTRY = ("kafkalog", "kafkalog.pytest_plugin")
INSTALLED = any(
    (point.name, point.value) == ENTRY
    for point in importlib.metadata.entry_points(group="pytest11")
)
RAW = """
from kafkalog.wire import apis
from tests.support.raw import Raw
"""


class Together:
    """One run of pytest for the files of several tests: each start takes most of a second."""

    def __init__(self, folder: Path) -> None:
        files = {
            name: textwrap.dedent(text)
            for name, text in globals().items()
            if name.startswith("IN_")
        }
        (folder / "pytest.ini").write_text("[pytest]\n")
        for name, text in files.items():
            (folder / f"test_{name.lower()}.py").write_text(RAW + text)
        # It finds the plugin itself, and all others installed.
        environment = {k: v for k, v in os.environ.items() if k != "PYTEST_DISABLE_PLUGIN_AUTOLOAD"}
        if not INSTALLED:
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        plugin = [] if INSTALLED else ["-p", ENTRY[1]]
        self._text = subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-rA",
             "--basetemp", "kept"],
            cwd=folder, env=environment, capture_output=True, text=True,
        ).stdout  # fmt: skip
        self.folder = folder

    def outcomes(self, name: str) -> dict[str, str]:
        """The outcome of each test of a file."""
        found = re.findall(rf"^([A-Z]+) test_{name.lower()}\.py::(\S+)", self._text, re.MULTILINE)
        assert found, self._text
        return {test: outcome for outcome, test in found}

    def told(self, test: str) -> str:
        """The report of a test that failed, or had an error."""
        found = re.search(rf"^_+ (ERROR at setup of )?{test} _+$(.*?)(?=^_{{10}}|^={{10}})",
                          self._text, re.MULTILINE | re.DOTALL)  # fmt: skip
        assert found, self._text
        return found[2]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Together:
    return Together(tmp_path_factory.mktemp("together"))


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(*arguments, test=text)`: pytest in its own process, with the plugin alone."""
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def call(*arguments: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**{name: RAW + textwrap.dedent(text) for name, text in files.items()})
        return pytester.runpytest_subprocess("-p", ENTRY[1], "-p", "no:cacheprovider", *arguments)

    return call


def test_pytest_finds_it_by_its_entry_point(root: object) -> None:
    text = (root / "pyproject.toml").read_text()  # type: ignore[operator]
    assert f'[project.entry-points.pytest11]\n{ENTRY[0]} = "{ENTRY[1]}"\n' in text


def test_the_unused_plugin_loads_nothing(root: object) -> None:
    """It loads nothing beyond `import kafkalog`: neither numpy nor the C core, asyncio, sockets."""
    program = (
        "import sys, pytest, kafkalog; before = set(sys.modules); import kafkalog.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=str(root)
    ).stdout.split()
    assert loaded == ["kafkalog.pytest_plugin"]


IN_EACH = """
import pytest
seen = set()

@pytest.mark.parametrize("number", range(3))
def test_alone(kafkalog_broker, tmp_path, number):
    assert kafkalog_broker.records("t") == []
    assert not list(tmp_path.iterdir())  # its data is in memory
    seen.add(kafkalog_broker.bootstrap_servers)
    with Raw(kafkalog_broker.bootstrap_servers) as raw:
        raw.create("t")
        raw.produce("t", b"a")
    assert [r.value for r in kafkalog_broker.wait_for_records("t", 1)] == [b"a"]

def test_they_were_different():
    assert len(seen) == 3
"""


def test_each_test_has_a_broker_of_its_own(together: Together) -> None:
    assert [*together.outcomes("IN_EACH").values()] == ["PASSED"] * 4


def test_settings_and_topics(run: Run) -> None:
    done = run(
        conftest="""
        import pytest

        @pytest.fixture(scope="session")
        def kafkalog_config():
            return {"num.partitions": 5, "auto.create.topics.enable": False}
        """,
        test_it="""
        import pytest

        pytestmark = pytest.mark.kafkalog(topics={"a": 2})

        def counts(broker):
            return {t: broker.broker._node.partitions.count(t) for t in ("a", "b", "c")}

        def test_of_all(kafkalog_broker):
            assert counts(kafkalog_broker) == {"a": 2, "b": 0, "c": 0}
            assert kafkalog_broker.broker.config.num_partitions == 5

        @pytest.mark.kafkalog(config={"num.partitions": 7}, topics={"b": 3, "a": 4})
        def test_of_one(kafkalog_broker):
            assert counts(kafkalog_broker) == {"a": 4, "b": 3, "c": 0}
            assert kafkalog_broker.broker.config.num_partitions == 7
        """,
    )
    done.assert_outcomes(passed=2)


IN_SECURED = """
import confluent_kafka
import pytest

def written(broker, topic, user):
    producer = confluent_kafka.Producer(broker.client_config("confluent-kafka", user))
    codes = []
    producer.produce(topic, b"a", on_delivery=lambda error, _: codes.append(
        error and error.code()))
    assert producer.flush(30) == 0
    return codes

@pytest.mark.kafkalog(
    topics={"orders-1": 1},
    security="sasl_ssl",
    users={"alice": "secret", "bob": "other"},
    acls=[("alice", "WRITE,DESCRIBE", "topic", "orders-*")],
)
def test_secured(kafkalog_broker):
    config = kafkalog_broker.client_config("confluent-kafka")
    assert config["security.protocol"] == "sasl_ssl"
    assert written(kafkalog_broker, "orders-1", "alice") == [None]
    refused = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert written(kafkalog_broker, "orders-1", "bob") == [refused]
    assert [record.value for record in kafkalog_broker.records("orders-1")] == [b"a"]

def test_plain(kafkalog_broker):
    found = kafkalog_broker.client_config("confluent-kafka")
    assert found == {"bootstrap.servers": kafkalog_broker.bootstrap_servers}
"""


def test_a_marker_secures_the_broker(together: Together) -> None:
    """Users log in over TLS and do what the ACLs say; the next test's broker has no security."""
    assert [*together.outcomes("IN_SECURED").values()] == ["PASSED"] * 2


IN_UNFIT = """
import pytest

@pytest.mark.kafkalog(security="sasl_ssl", users={})
def test_none(kafkalog_broker):
    pass
"""


def test_a_marker_whose_security_does_not_fit_is_an_error(together: Together) -> None:
    assert together.outcomes("IN_UNFIT") == {"test_none": "ERROR"}
    said = together.told("test_none")
    assert "users: found none, wanted at least one with security=sasl_ssl" in said


SHARED = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_shares(kafkalog_session_broker, kafkalog_topic_prefix, number):
        broker, topic = kafkalog_session_broker, kafkalog_topic_prefix + "orders"
        others = [t for t in broker.broker._node.image.topics if not t.startswith("__")]
        assert others == []  # what was there before is deleted
        broker.fill(topic, ["a"])
        assert len(broker.records(topic)) == 1
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
        (broker.kill if number == 1 else broker.pause)()
"""


def test_one_broker_for_all_with_a_prefix_each(run: Run) -> None:
    """Each test finds it healed, whatever the previous one did to it."""
    run(test_it=SHARED).assert_outcomes(passed=4)


def test_changes_of_the_shared_broker_end_with_the_test(run: Run) -> None:
    """Except topics of a failed test, which are kept; a moved clock is reset."""
    done = run(
        test_it="""
        def topics(broker):
            return [t for t in broker.broker._node.image.topics if not t.startswith("__")]

        def test_fails(kafkalog_session_broker, kafkalog_topic_prefix):
            kafkalog_session_broker.fill(kafkalog_topic_prefix + "kept", ["a"])
            kafkalog_session_broker.clock.advance(3_600_000)
            assert 0

        def test_passes(kafkalog_session_broker, kafkalog_topic_prefix):
            assert kafkalog_session_broker.clock.ahead_ms == 0
            kafkalog_session_broker.fill(kafkalog_topic_prefix + "gone", ["a"])
            assert len(topics(kafkalog_session_broker)) == 2

        def test_passes_too(kafkalog_session_broker, kafkalog_topic_prefix):
            assert topics(kafkalog_session_broker) == ["t1-test_fails-kept"]
    """
    )
    done.assert_outcomes(passed=2, failed=1)


def test_with_other_processes(run: Run) -> None:
    """Under xdist: both kinds of brokers, in two processes."""
    alone = """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_alone(kafkalog_broker, number):
            kafkalog_broker.fill("t", [str(number)])
            kafkalog_broker.restart()
            assert [r.value for r in kafkalog_broker.records("t")] == [str(number).encode()]
    """
    done = run("-p", "xdist.plugin", "-n", "2", test_alone=alone, test_shared=SHARED)
    done.assert_outcomes(passed=10)


IN_KEPT = """
def test_passes(kafkalog_broker):
    kafkalog_broker.fill("t", ["a"])

def test_fails(kafkalog_broker):
    kafkalog_broker.fill("orders", ["a"])
    kafkalog_broker.delay("Fetch", 5)
    assert 0
"""


def test_the_directory_of_a_test_that_failed_is_kept_and_told(together: Together) -> None:
    assert together.outcomes("IN_KEPT") == {"test_passes": "PASSED", "test_fails": "FAILED"}
    text = together.told("test_fails")
    assert "still set: Fault(Fetch is delayed 5 ms: 0 of 1)" in text
    command = re.search(r"kafkalog (consume --dir (\S+) --topic orders)", text)
    assert command, text
    read = subprocess.run(
        [sys.executable, "-m", "kafkalog", *command[1].split()], capture_output=True, text=True,
        check=True, cwd=together.folder,
    )  # fmt: skip
    assert read.stdout == "a\n"
    folder = Path(command[2])
    assert folder.name == "kafkalog" and "test_fails" in folder.parent.name
    assert_only_failed_ones_are_kept(together, "test_passes", "kafkalog")


def assert_only_failed_ones_are_kept(together: Together, passed: str, name: str) -> None:
    """The folder of a test that passed is gone, or has no data in it."""
    assert not list(together.folder.glob(f"kept/{passed}*/{name}"))


def test_data_lies_on_disk_when_asked_for(run: Run) -> None:
    done = run("--kafkalog-disk", test_it="""
        def test_passes(kafkalog_broker, tmp_path):
            assert kafkalog_broker.path == str(tmp_path / "kafkalog")
    """)  # fmt: skip
    done.assert_outcomes(passed=1)


def test_directories_are_kept_when_asked_for(run: Run, pytester: pytest.Pytester) -> None:
    done = run("--kafkalog-keep", "--basetemp", "kept", test_it="""
        def test_passes(kafkalog_broker):
            kafkalog_broker.fill("t", ["a"])
    """)  # fmt: skip
    done.assert_outcomes(passed=1)
    assert list(pytester.path.glob("kept/test_passes*/kafkalog/t-0/*.log"))


IN_STORE = """
def test_store_passes(kafkalog_store):
    with kafkalog_store.producer() as producer:
        assert producer.send("orders", b"a").result().offset == 0
    assert [r.value for r in kafkalog_store["orders"][0]] == [b"a"]

def test_store_fails(kafkalog_store):
    kafkalog_store.create_topic("orders")
    assert kafkalog_store.topics == ("none",)
"""


def test_a_store_of_ones_own(together: Together) -> None:
    found = together.outcomes("IN_STORE")
    assert found == {"test_store_passes": "PASSED", "test_store_fails": "FAILED"}
    text = together.told("test_store_fails")
    kept = re.search(r"kafkalog topics --dir (\S+)", text)
    assert kept, text
    assert (Path(kept[1]) / "orders-0").exists()
    assert_only_failed_ones_are_kept(together, "test_store_passes", "kafkalog-store")


IN_CLUSTER = """
import pytest

@pytest.mark.kafkalog(topics={"orders": 2})
def test_cluster_passes(kafkalog_cluster):
    kafkalog_cluster.fill("orders", ["a"])
    kafkalog_cluster.kill(kafkalog_cluster.leader("orders", 1))
    assert kafkalog_cluster.wait_for_records("orders", 1)[0].value == b"a"

def test_cluster_fails(kafkalog_cluster):
    kafkalog_cluster.partition(1, 2)
    kafkalog_cluster.stop(3)
    assert 0
"""


def test_a_cluster_of_ones_own(together: Together) -> None:
    """The marker sets settings and topics; after a failure its directories are kept and named."""
    found = together.outcomes("IN_CLUSTER")
    assert found == {"test_cluster_passes": "PASSED", "test_cluster_fails": "FAILED"}
    text = together.told("test_cluster_fails")
    assert "running: 1, 2; it is kept:" in text
    assert "still set at node 2: Fault(all of '1' is cut off: each)" in text
    kept = re.search(r"kafkalog topics --dir (\S+/node3)", text)
    assert kept, text
    command = [sys.executable, "-m", "kafkalog", "topics", "--dir", kept[1]]
    subprocess.run(command, capture_output=True, check=True)
    name = Path(kept[1]).parent.name
    assert_only_failed_ones_are_kept(together, "test_cluster_passes", name)
