"""A running cluster changes from plain text to SASL_SSL, and from open to closed, node by node,
without a stop."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.testing.standin import StandIn
from tests.support import apache
from tests.support.secured import ALICE
from tests.support.secured_nodes import LOGIN, NODES, SecuredNodes

pytestmark = [pytest.mark.slow]
OPEN = {"security.protocol": "PLAINTEXT"}


class Load:
    """A producer with acks=all that runs until it is stopped."""

    def __init__(self, servers: str, config: dict[str, str]) -> None:
        self.sent: list[bytes] = []
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        self._where = servers, config
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        servers, config = self._where
        try:
            with kafkalog.Producer(servers, config=config) as producer:
                for number in itertools.count():
                    if self._over.is_set():
                        return
                    value = f"{config['security.protocol']} {number}".encode()
                    producer.send("t", value, partition=0).result(120)
                    self.sent.append(value)
        except BaseException as problem:
            self.failed.append(problem)


class Changing:
    """An open cluster with a topic, whose nodes get other settings one after the other."""

    def __init__(self, nodes: SecuredNodes) -> None:
        self.nodes = nodes
        self._ports = {number: (apache.free_port(), apache.free_port()) for number in NODES}
        self.plain = ",".join(f"127.0.0.1:{one}" for one, _ in self._ports.values())
        self.secure = ",".join(f"127.0.0.1:{other}" for _, other in self._ports.values())
        for number in NODES:
            nodes.begin(number, settings={
                "listeners": self._old(number),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.name.inside.plain.sasl.jaas.config": None,
            })  # fmt: skip
        nodes.all_known()
        with kafkalog.Admin(self.plain, config=OPEN) as admin:
            admin.create_topic("t", 1)
        nodes.in_sync("t", *NODES)

    def _old(self, number: int) -> str:
        return f"PLAINTEXT://127.0.0.1:{self._ports[number][0]}"

    def _new(self, number: int) -> str:
        return f"INSIDE://127.0.0.1:{self._ports[number][1]}"

    def restart(self, number: int, settings: dict[str, object]) -> None:
        self.nodes.end(number)
        self.nodes.begin(number, settings=settings)
        self.nodes.all_known()
        self.nodes.in_sync("t", *NODES)

    def both(self, between: str, **more: object) -> None:
        """Restart each with both listeners, of which nodes use one; `more`: with underscores for
        dots."""
        for number in NODES:
            self.restart(number, {
                "listeners": f"{self._old(number)},{self._new(number)}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_SSL",
                "inter.broker.listener.name": between,
                **{name.replace("_", "."): value for name, value in more.items()},
            })  # fmt: skip

    def only_new(self, **more: object) -> None:
        """Restart each without the first listener."""
        for number in NODES:
            self.restart(number, {
                "listeners": self._new(number),
                **{name.replace("_", "."): value for name, value in more.items()},
            })  # fmt: skip


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Changing]:
    with StandIn() as inside, SecuredNodes(tmp_path, inside.hosts, "SASL_SSL") as nodes:
        yield Changing(nodes)


def test_from_plain_text_to_sasl_ssl(changing: Changing) -> None:
    """Each step restarts one node after the other: a second listener; the nodes use it between
    them; the first listener goes.  Every acknowledged record is there, once."""
    with Load(changing.plain, OPEN) as first:
        changing.both("PLAINTEXT")
        changing.both("INSIDE")
    assert not first.failed and first.sent
    with Load(changing.secure, changing.nodes.client) as second:
        changing.only_new()
    assert not second.failed and second.sent
    assert changing.nodes.values("t") == [*first.sent, *second.sent]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_from_open_to_closed(changing: Changing) -> None:
    """Four rounds, as docs/security.md has them: at first everybody still may do everything; in the
    end nobody without a login and a right does anything.  No client of either phase fails."""
    secured = {"authorizer_class_name": ACL_AUTHORIZER}
    everybody, nodes_only = f"User:ANONYMOUS;User:{LOGIN}", f"User:{LOGIN}"
    with Load(changing.plain, OPEN) as first:
        changing.both("PLAINTEXT", **secured, super_users=everybody)
        with kafkalog.Admin(changing.plain, config=OPEN) as admin:
            for right in ("write", "describe"):
                admin.create_acls([AclBinding("topic", "t", f"User:{ALICE}", right)]).check()
        changing.both("INSIDE", **secured, super_users=everybody)
    assert not first.failed and first.sent
    with Load(changing.secure, changing.nodes.client) as second:
        changing.both("INSIDE", **secured, super_users=nodes_only)
        with (
            kafkalog.Producer(changing.plain, config=OPEN) as producer,
            pytest.raises(errors.AuthorizationFailed),
        ):
            producer.send("t", b"by nobody", partition=0).result(60)
        with kafkalog.Admin(changing.plain, config=OPEN) as admin:
            assert "t" not in admin.list_topics()
        changing.only_new(**secured, super_users=nodes_only)
    assert not second.failed and second.sent
    with (
        kafkalog.Admin(changing.secure, config=changing.nodes.client) as admin,
        pytest.raises(errors.AuthorizationFailed),  # she has a login, and no right to this
    ):
        admin.create_topic("other", 1)
    assert changing.nodes.values("t") == [*first.sent, *second.sent]
