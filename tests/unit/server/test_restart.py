"""A broker restarts in its process with other settings: a single node and a quorum's voter."""

from __future__ import annotations

import ssl
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cluster.quorum.member import QuorumMember
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import (
    ArgumentError,
    Closed,
    InvalidSetting,
    IoFailed,
    KafkalogError,
    Timeout,
)
from kafkalog.kraft import loading
from kafkalog.kraft.batches import VOTERS, control_batch
from kafkalog.kraft.first_voter import become_voter, voters_in
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.loading import load
from kafkalog.raft.codec import control_record
from kafkalog.raft.replicas import ReplicaKey, Voter
from kafkalog.server.broker import Broker, serve_until
from tests.support.apache import free_port
from tests.support.certificates import Certificates, pem_of
from tests.support.controller_nodes import combined
from tests.support.waiting import wait_for

HERE = (("CONTROLLER", "127.0.0.1", 1234),)
OTHER = uuid.UUID(int=77_777)


def as_quorum(port: int) -> dict[str, object]:
    """The settings of the first voter, whose clients' port stays."""
    controller = free_port()
    found = combined(1, port=controller)
    del found["controller.quorum.voters"]
    found["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller}"
    found["listeners"] = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    return found


def test_a_single_node_becomes_a_voter_and_a_single_node_again(tmp_path: Path) -> None:
    """Clients of the network and of this process go on, and no record is lost."""
    port = free_port()
    single = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with Broker(tmp_path / "data", config=single) as broker:
        broker.store.create_topic("t")
        cluster = broker.store.admin.describe_cluster().cluster_id
        inside, outside = broker.store.producer(), kafkalog.Producer(f"127.0.0.1:{port}")
        with inside, outside:
            for number, config in enumerate((None, as_quorum(port), single)):
                if config is not None:
                    broker.restart(config)
                inside.send("t", b"in%d" % number).result()
                outside.send("t", b"out%d" % number).result()
                if number == 1:
                    with kafkalog.Admin(f"127.0.0.1:{port}") as admin:
                        (voter,) = admin.describe_quorum().voters
                        assert (voter.node, voter.directory_id.int > 99) == (1, True)
        log = broker.store["t"][0]
        assert [one.value for one in log.read(0)] == [
            b"in0", b"out0", b"in1", b"out1", b"in2", b"out2",
        ]  # fmt: skip
        assert broker.store.admin.describe_cluster().cluster_id == cluster


def test_settings_that_are_refused_change_nothing(tmp_path: Path) -> None:
    """Nor do those that are found wrong only when everything has ended: the old ones come back."""
    port = free_port()
    with Broker(tmp_path / "data", config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as one:
        one.store.create_topic("t")
        with one.store.producer() as producer, Broker(tmp_path / "other") as other:
            with pytest.raises(InvalidSetting):
                one.restart({"process.roles": "controller"})
            producer.send("t", b"a").result()
            with pytest.raises(KafkalogError, match="listener PLAINTEXT"):
                one.restart({"listeners": f"PLAINTEXT://{other.bootstrap_servers}"})
            producer.send("t", b"b").result()
            with pytest.raises(ArgumentError, match=r"node\.id"):
                one.restart({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "node.id": 5})
            producer.send("t", b"c").result()
        assert [record.value for record in one.store["t"][0].read(0)] == [b"a", b"b", b"c"]


def test_a_restart_changes_the_protection_of_a_listener(tmp_path: Path) -> None:
    """To TLS, to another certificate, which clients see, and back; a certificate that is not there
    is refused, and nothing has changed."""
    port, certificates = free_port(), Certificates(tmp_path)
    plain = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    secured = {"listeners": f"SSL://127.0.0.1:{port}", **certificates.settings()}
    client = {
        "security.protocol": "SSL", "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trust),
    }  # fmt: skip

    def sent(value: bytes, config: dict[str, str]) -> None:
        with kafkalog.Producer(f"127.0.0.1:{port}", config=config) as producer:
            producer.send("t", value).result()

    with Broker(tmp_path / "data", config=plain) as broker:
        broker.store.create_topic("t")
        sent(b"plain", {})
        broker.restart(secured)
        sent(b"encrypted", client)
        first = ssl.get_server_certificate(("127.0.0.1", port))
        renewed = certificates.authority.issue_cert("localhost", "127.0.0.1")
        certificates.keystore.write_text(pem_of(renewed))
        broker.restart(secured)
        assert ssl.get_server_certificate(("127.0.0.1", port)) != first
        sent(b"renewed", client)
        with pytest.raises(InvalidSetting, match=r"ssl\.keystore\.location"):
            broker.restart({**secured, "ssl.keystore.location": str(tmp_path / "none.pem")})
        sent(b"as before", client)
        broker.restart(plain)
        sent(b"plain again", {})
        assert [one.value for one in broker.store["t"][0].read(0)] == [
            b"plain", b"encrypted", b"renewed", b"as before", b"plain again",
        ]  # fmt: skip


def test_clients_of_this_process_go_on_if_the_new_life_fails_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with Broker(tmp_path / "data", config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as one:
        one.store.create_topic("t")
        with one.store.producer() as producer:
            with monkeypatch.context() as patch:
                patch.setattr(QuorumMember, "register", _not_registered)
                with pytest.raises(Timeout):
                    one.restart(as_quorum(port))
            producer.send("t", b"a").result()
        assert [record.value for record in one.store["t"][0].read(0)] == [b"a"]


def test_the_end_of_the_process_ends_a_restart_that_waits_for_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may keep a registered broker fenced for any time.  It goes on with nothing."""
    port = free_port()
    single = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    ending = threading.Event()
    one = serve_until(ending, str(tmp_path / "data"), single)
    monkeypatch.setattr(QuorumMember, "_live", lambda member: member._closed.wait())

    def ends() -> None:
        wait_for(lambda: one._member is not None, "it waits for the controllers")
        ending.set()

    with ThreadPoolExecutor(1) as ender:
        ended = ender.submit(ends)
        with pytest.raises(Closed):
            one.restart(as_quorum(port))
        ended.result()
    with pytest.raises(Closed):
        one.restart(single)
    Broker(tmp_path / "data", config=single).close()  # nothing is left of it


def _not_registered(*_: object) -> None:
    raise Timeout("not registered in time")


def test_a_broker_that_cannot_end_in_order_is_closed(tmp_path: Path) -> None:
    """A disk that has failed is not opened again: whoever has the broker learns that it is gone."""
    config = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    one = Broker(tmp_path / "data", config=config)

    def fails() -> None:
        raise IoFailed("the flush failed")

    one._undo.insert(1, fails)
    for _ in range(2):
        with pytest.raises(Closed):
            one.restart(config)
    one.close()


def _single(path: Path) -> tuple[Manager, uuid.UUID]:
    manager = Manager(path)
    MetadataLog.open(manager).close()
    assert manager.meta is not None and manager.meta.directory_id is not None
    return manager, manager.meta.directory_id


def test_only_the_sole_voter_writes_itself_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; again if its address has changed; and nobody else's log is touched.  When nothing is
    to be written, as at most starts, the metadata are not decoded: the replica does that."""
    manager, mine = _single(tmp_path / "data")
    log = manager.get(METADATA_TOPIC, 0)
    assert become_voter(manager, 1, mine, HERE)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "decode", None)
        assert not become_voter(manager, 1, mine, HERE)
    there = (("CONTROLLER", "127.0.0.1", 4321),)
    assert become_voter(manager, 1, mine, there)
    itself = Voter(ReplicaKey(1, mine), there)
    assert voters_in(load(log, "c", 1)) == (itself,)
    assert not become_voter(manager, 2, mine, HERE)  # not the last leader

    three = (itself, Voter(ReplicaKey(2, OTHER), HERE))
    row = (VOTERS, control_record(three, 1)[1])
    log.append_as_follower(control_batch([row], log.end_offset, 1, 0))
    end = log.end_offset
    assert not become_voter(manager, 1, mine, HERE) and log.end_offset == end
    with pytest.raises(ArgumentError, match=r"found voters \[2\] besides 1.*remove-controller"):
        MetadataLog.open(manager)
    manager.close()
    with Manager(tmp_path / "new") as manager:
        assert not become_voter(manager, 1, mine, HERE)
