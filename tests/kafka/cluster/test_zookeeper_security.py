"""Sessions with a real ZooKeeper that are encrypted, log in, and protect what they create."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.cli import main
from kafkalog.config.server import ServerConfig
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.documents import DENIED
from kafkalog.zookeeper.security import security_of
from kafkalog.zookeeper.session import Create, Session, Set, Timeouts
from tests.support import apache
from tests.support.secured import Papers, jaas, papers
from tests.support.secured_nodes import SecuredNodes
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long]

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = "kafkalog.zookeeper.sasl.jaas.config"
SHORT = Timeouts(10_000, 500)
USUAL = Timeouts(20_000, 60_000)


class Protected(NamedTuple):
    """A ZooKeeper with a port for TLS and one without; it knows a user."""

    plain: str
    tls: str
    files: Papers

    def settings(self, **more: Any) -> dict[str, object]:
        """TLS, with the certificates as files; `more` with underscores for dots."""
        given = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.files.authority),
            "zookeeper.ssl.keystore.location": str(self.files.client),
        }
        return {**given, **{name.replace("_", "."): text for name, text in more.items()}}


def login(password: str = "s3;cret", name: str = "node") -> dict[str, object]:
    return {LOGIN: jaas(MODULE, username=name, password=password)}


def session(hosts: str, settings: dict[str, object], timeouts: Timeouts = USUAL) -> Session:
    return Session(hosts, lambda _: None, timeouts, security_of(ServerConfig(settings)))


def refused(hosts: str, settings: dict[str, object], said: str) -> str:
    """Wait until a session is refused for this reason; returns the failure."""

    def found() -> str:
        with pytest.raises(errors.ZooKeeperAway, match="no ZooKeeper answers") as problem:
            session(hosts, settings, SHORT)
        text = str(problem.value)
        return text if re.search(said, text) else ""

    return str(wait_for(found, said))


@pytest.fixture(scope="module")
def protected(memory: Path) -> Iterator[Protected]:
    folder = memory / "protected"
    folder.mkdir()
    files = papers(folder)
    port = apache.free_port()
    users = folder / "jaas.conf"
    users.write_text(f"Server {{ {jaas(MODULE, user_node='s3;cret', user_other='other')} }};\n")
    lines = f"""
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={files.server}
ssl.keyStore.type=PEM
ssl.trustStore.location={files.authority}
ssl.trustStore.type=PEM
ssl.clientAuth=need
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
"""
    option = f"-Djava.security.auth.login.config={users}"
    try:
        with ZooKeeper(folder / "zookeeper", lines, [option]) as running:
            yield Protected(running.hosts, f"127.0.0.1:{port}", files)
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


def test_a_session_by_tls(protected: Protected) -> None:
    """Answers that are larger than a TLS record, and many at the same time."""
    with session(f"{protected.tls}/large", protected.settings()) as made:
        made.ensure(["/a"])
        paths = [f"/a/{number}" for number in range(300)]
        data = {path: path.encode() * 500 for path in paths}
        assert all(one.done for one in made.commits([[Create(p, d)] for p, d in data.items()]))
        found = made.tree("/a")
        assert {path: found[path].data for path in paths} == data


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"zookeeper_ssl_truststore_location": "elsewhere"}, "TLS: .*certificate"),
        ({"zookeeper_ssl_truststore_location": ""}, "TLS: .*certificate"),
    ],
)
def test_a_wrong_certificate_is_named(
    protected: Protected, tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    wrong = {name: value and str(papers(tmp_path).authority) for name, value in wrong.items()}
    refused(protected.tls, protected.settings(**wrong), said)


def test_plain_text_at_the_port_of_tls_is_no_session(protected: Protected) -> None:
    with pytest.raises(errors.ZooKeeperAway, match="no ZooKeeper answers"):
        session(protected.tls, {}, SHORT)


@pytest.mark.parametrize("tls", [False, True])
def test_a_node_owns_the_znodes_that_it_creates(protected: Protected, tls: bool) -> None:
    """As Kafka's brokers protect it: all may read it, except credentials; only those with the same
    login may change it."""
    hosts, more = protected.plain, {"zookeeper.set.acl": "true", **login()}
    if tls:
        hosts, more = protected.tls, {**protected.settings(), **more}
    root = f"/own{int(tls)}"
    user = "/kafka-acl/Topic"
    with session(f"{hosts}{root}", more) as mine:
        mine.ensure([tree.TOPICS, "/config/users", tree.DELEGATION_TOKENS, "/consumers", user])
        assert mine.commit([Create("/config/users/alice", b"secret")]).done
        assert mine.commit([Create(f"{tree.TOPICS}/t", b"1")]).done
    with session(f"{protected.plain}{root}", {}) as nobody:
        found = nobody.read(f"{tree.TOPICS}/t")
        assert found is not None and found.data == b"1"
        assert nobody.commit([Set(f"{tree.TOPICS}/t", b"2")]).why == "NoAuth"
        assert nobody.commit([Create(f"{tree.TOPICS}/u", b"2")]).why == "NoAuth"
        secret = nobody.read("/config/users/alice")
        assert secret is not None and secret.data == DENIED
        assert nobody.commit([Create("/consumers/old", b"")]).done
    with session(f"{protected.plain}{root}", login("other", "other")) as other:
        assert other.commit([Set(f"{tree.TOPICS}/t", b"2")]).why == "NoAuth"
    with session(f"{protected.plain}{root}", login()) as again:
        found = again.read("/config/users/alice")
        assert found is not None and found.data == b"secret"
        assert again.commit([Set(f"{tree.TOPICS}/t", b"2")]).done


@pytest.mark.parametrize("wrong", [login("m1stake"), login("m1stake", "nobody")])
def test_a_wrong_login_is_named(protected: Protected, wrong: dict[str, object]) -> None:
    assert "m1stake" not in refused(protected.plain, wrong, "login: ")


def test_a_session_logs_in_again_on_each_connection(protected: Protected) -> None:
    more = {"zookeeper.set.acl": "true", **login()}
    with session(f"{protected.plain}/again", more) as made:
        made.ensure(["/a"])
        made._client._connection._socket.shutdown(socket.SHUT_RDWR)
        for number in range(3):
            while True:
                try:
                    assert made.commit([Create(f"/a/{number}")]).why in ("", "NodeExists")
                    break
                except errors.ZooKeeperAway:  # until it is connected again
                    continue


def test_nodes_with_everything_protected(protected: Protected, tmp_path: Path) -> None:
    """Between nodes, and at ZooKeeper."""
    hosts = f"{protected.tls}/nodes"
    own = {**protected.settings(), **login(), "zookeeper.set.acl": "true"}
    with SecuredNodes(tmp_path, hosts, "SASL_SSL") as nodes:
        nodes.begin(1, 2, 3, settings=own)
        nodes.all_known()
        nodes.create("t")
        nodes.produce("t", b"1")
        nodes.kill(nodes.leader("t"))
        nodes.produce("t", b"2")
        assert nodes.values("t") == [b"1", b"2"]
    with session(f"{protected.plain}/nodes", {}) as nobody:
        assert nobody.commit([Create(tree.CONTROLLER)]).why == "NoAuth"


def test_a_directory_is_adopted_with_the_login_of_the_node(
    protected: Protected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its topics belong to the node, as all that nodes create, and nobody else changes them."""
    home, hosts = tmp_path / "alone", f"{protected.tls}/adopted"
    with kafkalog.Broker(home) as alone, kafkalog.Admin(alone.bootstrap_servers) as admin:
        admin.create_topic("brought", 1)
    more = {**protected.settings(zookeeper_set_acl="true"), **login(), "zookeeper.connect": hosts}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in more.items()))
    words = ["cluster", "adopt", "--dir", str(home), "--config", str(file), "--node-id", "4"]
    assert main([*words, "--execute"]) == 0, capsys.readouterr()
    with session(f"{protected.plain}/adopted", {}) as nobody:
        path = tree.topic_path("brought")
        assert nobody.read(path) is not None
        assert nobody.commit([Set(path, b"2")]).why == "NoAuth"
    more["listeners"] = "PLAINTEXT://127.0.0.1:0"
    with (
        kafkalog.Broker(home, config={**more, "node.id": 4}) as node,
        kafkalog.Admin(node.bootstrap_servers) as admin,
    ):
        wait_for(lambda: "brought" in admin.list_topics(), "it is the node's")
