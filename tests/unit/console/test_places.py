"""The console at a broker's own port, and as a command."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.console import web
from kafkalog.console.person import UNUSED_S, Person, Place
from kafkalog.errors import Closed, InvalidSetting, MissingPackage
from kafkalog.testing.cluster import TestCluster
from tests.house import tree
from tests.support import sasl
from tests.support.certificates import Certificates, client_context
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

HTTP = {"kafkalog.http.listen": "127.0.0.1:0"}
ENABLED = {**HTTP, "kafkalog.console.enable": "true"}


def test_off_by_default(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", config=HTTP) as broker:
        for path in ("/", "/api/session", "/static/main.js"):
            assert Browser(broker.http_url).ask(path).status == 404


def test_a_broker_serves_its_console_next_to_its_metrics(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0", config=ENABLED) as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topic("orders", 2)
        with kafkalog.Producer(broker) as producer:
            producer.send("orders", b"x", partition=1)
        assert broker.http_url == f"http://{broker.http_address}/"
        browser = Browser(broker.http_url)
        assert browser.begin()["here"]
        (segment,) = browser.get("layout", name="orders", partition=1)["segments"]
        assert (segment["base_offset"], segment["next_offset"], segment["active"]) == (0, 1, True)
        assert browser.post("create-topic", name="t", partitions=1, replication=1).status == 403
        assert b"kafkalog_ready 1" in browser.ask("/metrics", Host="broker1.example:9404").body
        assert browser.ask("/health/ready", Host="broker1.example:9404").status == 200
        assert browser.ask("/", Host="broker1.example:9404").status == 421
        broker.restart({"kafkalog.console.write": "true", **ENABLED, "kafkalog.console.hosts":
                        "Broker1.example"})  # fmt: skip
        again = Browser(broker.http_url)
        again.begin()
        assert again.ask("/", Host="broker1.example:9404").status == 200
        assert again.post("create-topic", name="t", partitions=1, replication=1).status == 200
        broker.abandon()


def test_without_its_server_the_broker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingPackage, match=r"pip install 'kafkalog\[console\]'"):
        kafkalog.Broker(tmp_path / "data", "127.0.0.1:0", config=ENABLED)
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0", config=HTTP) as broker:
        assert Browser(broker.http_url).ask("/health/live").status == 200


def test_logins_are_those_of_the_brokers_listener(tmp_path: Path) -> None:
    """The listener with logins is preferred: on the other one everyone has the same rights."""
    made = Certificates(tmp_path)
    config = {
        **sasl.settings("PLAIN", "SCRAM-SHA-256"), **ENABLED,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "kafkalog.http.ssl.keystore.location": str(made.keystore),
    }  # fmt: skip
    with kafkalog.Broker(tmp_path / "data", config=config) as broker:
        with kafkalog.Admin(broker) as admin:
            alice = kafkalog.UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "alice-S3CRET")
            admin.alter_user_scram_credentials([alice]).check()
        browser = Browser(broker.http_url, client_context(made.trust))
        assert browser.begin()["login"]
        assert browser.log_in("alice", "wrong").status == 401
        assert browser.log_in("alice", "alice-S3CRET").status == 200
        assert browser.get("topics")["total"] == 0


@pytest.mark.parametrize(("config", "message"), [
    ({"kafkalog.console.enable": "true"}, "wanted kafkalog.http.listen with it"),
    ({**ENABLED, "kafkalog.http.ssl.keystore.location": "/no/such.pem"}, "wanted a PEM file"),
    ({**ENABLED, "kafkalog.console.client.config": "/no/such"}, "client.config: /no/such"),
    ({**ENABLED, "kafkalog.console.hosts": "a b"}, "kafkalog.console.hosts"),
])  # fmt: skip
def test_wrong_settings_are_explained(tmp_path: Path, config: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        kafkalog.Broker(tmp_path / "data", config=config)


def test_the_listener_of_a_clients_file_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    config = {**ENABLED, "kafkalog.console.client.config": str(file)}
    with pytest.raises(InvalidSetting, match="found SASL_SSL, wanted that of a listener"):
        kafkalog.Broker(tmp_path / "data", "127.0.0.1:0", config=config)


def test_the_command_serves_any_cluster(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as broker:
        words = ["console", "--bootstrap-server", broker.bootstrap_servers, "--listen", "0"]
        with subprocess.Popen(
            [sys.executable, "-m", "kafkalog", *words, "--write", "--host", "here.example"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tree.ROOT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("console: ").strip()
            browser = Browser(url)
            assert browser.begin()["write"]
            assert browser.ask("/", Host="here.example").status == 200
            assert browser.get("cluster")["nodes"][0]["node"] == 1
            assert browser.post(
                "create-topic", name="t", partitions=1, replication=1
            ).json == {"name": "t"}  # fmt: skip
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
            assert process.stderr is not None
            assert "console: 'anonymous': create-topic" in process.stderr.read()


def test_the_commands_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    server = ["console", "--bootstrap-server", "localhost:1"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        for words, status, message in (
            (["--listen", "x"], 2, "--listen: found 'x', wanted host:port"),
            (["--listen", at], 1, f"--listen: {at}"),
            (["--listen", "0", "--tls", str(tmp_path / "x")], 2, "--tls: "),
        ):
            assert main([*server, *words]) == status
            assert message in capsys.readouterr().err


def test_a_cluster_after_a_node_is_gone(tmp_path: Path) -> None:
    """The console goes on with the other nodes, and shows which replicas are missing."""
    with TestCluster(tmp_path / "nodes") as cluster:
        cluster.create_topic("orders", 3)
        cluster.fill("orders", [b"x"] * 9)
        with console(Place(lambda: cluster.bootstrap_servers)) as server:
            browser = Browser(server.url)
            browser.begin()
            before = browser.get("cluster")
            assert (len(before["nodes"]), before["unhealthy"]) == (3, [])
            gone = cluster.leader("orders", 0)
            cluster.kill(gone)
            cluster.wait_until(lambda: gone not in cluster.in_sync("orders", 0), "it is missed")
            wait_for(lambda: browser.get("cluster")["unhealthy_count"] >= 3, "and shown")
            rows = browser.get("partitions", name="orders", only="unhealthy")["rows"]
            assert len(rows) == 3 and all(gone not in row["isr"] for row in rows)
            assert all(len(row["bytes"]) == 2 for row in rows)
            found = browser.get("records", topic="orders")
            assert len(found["records"]) == 9 and found["end"]


def test_share_groups_have_a_lag(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topic("orders", 1)
            change = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs({("group", "workers"): change}).check()
        with kafkalog.Producer(broker) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number)
        with (
            console(Place(lambda: broker.bootstrap_servers)) as server,
            kafkalog.ShareConsumer(broker, "orders", group="workers") as worker,
        ):
            browser = Browser(server.url)
            browser.begin()
            wait_for(lambda: worker.poll(500, max_records=5), "records")

            def begun() -> list[dict[str, object]]:
                """A poll acknowledges the records of the one before."""
                worker.poll(100, max_records=5)
                rows: list[dict[str, object]] = browser.get("group", name="workers")["partitions"]
                return rows

            (row,) = wait_for(begun, "the group has begun")
            assert (row["topic"], row["partition"]) == ("orders", 0)
            assert isinstance(row["lag"], int) and 0 <= row["lag"] <= 20
            listed = browser.get("groups", kind="share")["groups"]
            assert [one["name"] for one in listed] == ["workers"]
            found = browser.get("group", name="workers")
            assert (found["kind"], found["member_count"]) == ("share", 1)
            assert found["members"][0]["partitions"] == [["orders", 0]]


def test_the_last_hour_is_remembered(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topic("orders", 1)
        person = Person(Place(lambda: broker.bootstrap_servers), "", "")
        try:
            person.remember()
            with kafkalog.Producer(broker) as producer:
                producer.send("orders", b"x")
            person.remember()
            assert person.view is not None and person.view.totals.topics == 1
            ((at_ms, per_s),) = person.points("topic", "orders", "records_per_s")
            assert at_ms > 0 and per_s > 0
            assert len(person.points("cluster", "", "lag")) == 2
            assert person.points("topic", "none", "records_per_s") == []
        finally:
            person.close()
        person.remember()  # a session that ended in the meantime
        with pytest.raises(Closed):
            person.topics(fresh=True)


def test_unused_clients_are_closed(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topic("orders", 1)
        person = Person(Place(lambda: broker.bootstrap_servers), "", "")
        try:
            admin = person.admin
            with person.reader(committed=False) as first:
                pass
            with person.reader(committed=False) as again:
                assert again is first
            with person.reader(committed=True) as other:
                assert other is not first
            with pytest.raises(ZeroDivisionError), person.reader(committed=True) as same:
                assert same is other
                _ = 1 / 0
            with person.reader(committed=True) as after:
                assert after is not other
            person.remember()
            now_s = time.monotonic()
            person.tidy(now_s)
            assert person.admin is admin and not admin.closed
            person.tidy(now_s + 2 * UNUSED_S)
            assert admin.closed and person.admin is not admin
            person.forget()
            assert person.view is None and person.remember() > 0
            assert "orders" in person.topics()
        finally:
            person.close()


def test_only_the_sessions_used_last_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sampled(Person):
        """It writes down what it is asked to do."""

        def __init__(self, name: str, partitions: int) -> None:
            super().__init__(Place(str), name, "")
            self.partitions = partitions

        def remember(self) -> int:
            done.append(self.user)
            if self.partitions < 0:
                raise Closed("it has ended")
            return self.partitions

        def forget(self) -> None:
            done.append(f"not {self.user}")

    done: list[str] = []
    web._sample([Sampled("a", 1), Sampled("b", 400_000), Sampled("c", -1), Sampled("d", 9)])
    assert done == ["d", "c", "b", "not a"]
    done.clear()
    monkeypatch.setattr(web, "SAMPLED_MAX", 1)
    web._sample([Sampled("a", 1), Sampled("b", 1)])
    assert done == ["b", "not a"]
