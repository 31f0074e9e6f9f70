"""A running cluster changes from plain text to SASL_SSL, node by node, without a stop."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.standin import StandIn
from tests.support import apache
from tests.support.secured_nodes import NODES, SecuredNodes

pytestmark = [pytest.mark.slow]


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


def test_from_plain_text_to_sasl_ssl(tmp_path: Path) -> None:
    """Each step restarts one node after the other: a second listener; the nodes use it between
    them; the first listener goes.  Every acknowledged record is there, once."""
    ports = {number: (apache.free_port(), apache.free_port()) for number in NODES}
    plain = ",".join(f"127.0.0.1:{one}" for one, _ in ports.values())
    secure = ",".join(f"127.0.0.1:{other}" for _, other in ports.values())

    def steps(number: int) -> list[dict[str, object]]:
        one, other = ports[number]
        old, new = f"PLAINTEXT://127.0.0.1:{one}", f"INSIDE://127.0.0.1:{other}"
        protocols = "PLAINTEXT:PLAINTEXT,INSIDE:SASL_SSL"
        return [
            {"listeners": f"{old},{new}", "listener.security.protocol.map": protocols,
             "inter.broker.listener.name": "PLAINTEXT"},
            {"listeners": f"{old},{new}", "listener.security.protocol.map": protocols,
             "inter.broker.listener.name": "INSIDE"},
            {"listeners": new},
        ]  # fmt: skip

    with StandIn() as inside, SecuredNodes(tmp_path, inside.hosts, "SASL_SSL") as nodes:
        for number in NODES:
            (old, _) = ports[number]
            nodes.begin(number, settings={
                "listeners": f"PLAINTEXT://127.0.0.1:{old}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.name.inside.plain.sasl.jaas.config": None,
            })  # fmt: skip
        nodes.all_known()
        open_to_all = {"security.protocol": "PLAINTEXT"}
        with kafkalog.Admin(plain, config=open_to_all) as admin:
            admin.create_topic("t", 1)
        nodes.in_sync("t", *NODES)

        def change(step: int) -> None:
            for number in NODES:
                nodes.end(number)
                nodes.begin(number, settings=steps(number)[step])
                nodes.all_known()
                nodes.in_sync("t", *NODES)

        with Load(plain, open_to_all) as first:
            change(0)
            change(1)
        assert not first.failed and first.sent
        with Load(secure, nodes.client) as second:
            change(2)
        assert not second.failed and second.sent
        assert nodes.values("t") == [*first.sent, *second.sent]
