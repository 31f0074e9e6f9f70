"""Rights and TLS with requests that wait, and with fetch sessions (docs/pairs.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.config.server import ServerConfig
from kafkalog.server.network.tls import TlsContext
from tests.support.certificates import Certificates, client_context
from tests.unit.plane.peer import ALL, Peer, Served, one
from tests.unit.plane.test_durability import held
from tests.unit.plane.test_rules import DENIED, READ, WRITE, put, rules
from tests.unit.plane.test_sessions import VERSIONS, again, begin, told


def encrypted(served: Served, folder: Path) -> Peer:
    """A connection to one more listener, which has TLS."""
    certificates = Certificates(folder)
    tls = TlsContext(ServerConfig(certificates.settings()))
    peer = Peer(("127.0.0.1", served.reactor.listen("127.0.0.1", 0, 1, tls)))
    context = client_context(certificates.trust)
    peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
    served.peers.append(peer)
    return peer


def test_a_produce_that_waits_for_the_disk_outlives_its_right(served, peer, faults, wait_until):
    """It was accepted: it is acknowledged.  The next one is denied, before and after that."""
    log = served.put(durable=True)
    put(served, rules(t=(WRITE | READ, 0)))
    faults.kl_io_hold(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    held(faults, wait_until)
    put(served)
    other = served.connect()
    assert other.produce_one(one(), acks=ALL).error_code == DENIED
    faults.kl_io_hold(b"fdatasync", 0)
    assert peer.receive().responses[0].partition_responses[0].error_code == 0
    assert peer.produce_one(one(), acks=ALL).error_code == DENIED
    assert log.end_offset == 1


def test_a_fetch_that_waits_outlives_its_right(served, peer, wait_until):
    log = served.put()
    put(served, rules(t=(READ, 0)))
    peer.send_fetch({("t", 0): 0}, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 1, "it waits")
    put(served)
    log.append(b"v")
    (found,) = peer.receive().responses[0].partitions
    assert found.error_code == 0 and found.records
    assert peer.fetch_one(0).error_code == DENIED


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_sessions_over_tls(served, tmp_path, wait_until, version):
    """Only changes are answered; a session outlives its connection, and may wait."""
    served.put(partitions=3)
    peer = encrypted(served, tmp_path)
    session = begin(peer, {("t", p): 0 for p in range(3)}, version).session_id
    assert session > 0 and told(again(peer, session, 1, version=version)) == []
    data = one(b"x" * 100_000)
    assert peer.produce_one(data, ("t", 1)).error_code == 0
    assert told(again(peer, session, 2, version=version)) == [(1, len(data))]
    other = encrypted(served, tmp_path)
    other.send_fetch({("t", 1): 1}, version=version, session_id=session, session_epoch=3,
                     max_wait_ms=60_000)  # fmt: skip
    wait_until(lambda: served.parked() == 1, "it waits")
    assert peer.produce_one(data, ("t", 2)).error_code == 0
    assert told(other.receive()) == [(2, len(data))]
