"""A protected KRaft cluster moves from Apache Kafka to us and back: SASL_SSL everywhere, users of
SCRAM, and ACLs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from kafkalog.kraft.format import read_meta
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.cluster.members import KAFKA, OURS, until
from tests.kafka.quorum.combined import Combined, CombinedNodes, checked
from tests.kafka.quorum.secured import MECHANISM, by_scram, dressed
from tests.support import apache
from tests.support.secured import ALICE, PASSWORD, Papers, papers

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

NODES = (1, 2, 3)
TOPIC, GROUP = "letters", "readers"
SECRET = "S3CRET"


@pytest.fixture
def files(tmp_path: Path) -> Papers:
    folder = tmp_path / "papers"
    folder.mkdir()
    return papers(folder)


@pytest.fixture
def nodes(tmp_path: Path, files: Papers) -> Iterator[CombinedNodes]:
    """Three of Kafka's, with a topic that alice may write and read."""
    made = CombinedNodes(
        tmp_path / "nodes", NODES,
        protected=lambda listeners: dressed(files, {"listeners": listeners}),
    )  # fmt: skip
    try:
        with made:
            made.begin_all(NODES, KAFKA)
            made.create(TOPIC, *(NODES[n:] + NODES[:n] for n in range(3)))
            made.admin.create_acls(rights(ALICE, "write", "read")).check()
            made.admin.create_acls([AclBinding("group", GROUP, f"User:{ALICE}", "read")]).check()
            yield made
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def rights(user: str, *operations: str) -> list[AclBinding]:
    """ACLs of a user for the topic."""
    return [AclBinding("topic", TOPIC, f"User:{user}", one) for one in operations]


class Writer:
    """A producer of alice's, which goes on while nodes change hands; a context manager."""

    def __init__(self, nodes: CombinedNodes, client: dict[str, str]) -> None:
        self._producer = kafkalog.Producer(nodes.bootstrap, acks="all", config=client)
        self._thread = threading.Thread(target=self._run)
        self._over = threading.Event()
        self.sent: list[Any] = []
        """The futures of what it sent."""

    def _run(self) -> None:
        for number in itertools.count():
            if self._over.wait(0.02):
                return
            self.sent.append(self._producer.send(TOPIC, b"%d" % number, partition=number % 3))

    def goes_on(self) -> None:
        """Wait until what is sent from now on is acknowledged."""
        wanted = len(self.sent) + 6
        until(lambda: len(self.sent) > wanted and self.sent[wanted].done(), "records go on")
        self.sent[wanted].result()

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.close()


def described(node: Combined, client: dict[str, str]) -> int:
    """The error of the topic, as a node answers this user; -1: it is not let in."""
    try:
        with node.connection(client) as made:
            (row,) = made.call(apis.METADATA, {"topics": [{"name": TOPIC}]}, 12).topics
    except errors.SaslAuthenticationFailed:
        return -1
    return int(row.error_code)


def check(nodes: CombinedNodes, files: Papers, users: list[str]) -> None:
    """Each node lets in the users, and no others, each with its rights."""
    refused = by_scram(files, ALICE, "wrong")
    for node in nodes.nodes.values():
        for user in users:
            known = by_scram(files, user, PASSWORD if user == ALICE else SECRET)
            until(lambda n=node, k=known: described(n, k) == 0, f"{node.number} lets {user} in")
        assert described(node, refused) == -1
        stranger = by_scram(files, "stranger", SECRET)
        until(
            lambda n=node, s=stranger: described(n, s) == ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{node.number} shows a stranger nothing",
        )


def add(nodes: CombinedNodes, user: str, *acls: AclBinding) -> None:
    """Add a user of SCRAM, with these rights."""

    def added() -> bool:
        one = UserScramCredentialUpsertion(user, MECHANISM, SECRET)
        nodes.admin.alter_user_scram_credentials([one]).check()
        nodes.admin.create_acls(acls).check()
        return True

    nodes.try_until(added, f"{user} is added")


def test_a_protected_cluster_changes_hands_and_back(nodes: CombinedNodes, files: Papers) -> None:
    """On their directories, one node after the other, while alice writes.  In between each kind of
    controller takes new users and ACLs, which every node obeys."""
    before = {n: read_meta(str(node.data)) for n, node in nodes.nodes.items()}
    alice = by_scram(files, ALICE, PASSWORD)
    users = [ALICE]
    add(nodes, "stranger")
    check(nodes, files, users)
    with Writer(nodes, alice) as writer:
        for kind in (OURS, KAFKA):
            for number in NODES:
                nodes.fits(number)
                nodes.nodes[number].stop()
                nodes.begin(number, kind)
                nodes.in_sync()
                nodes.first_lead()
                writer.goes_on()
                users.append(f"user{len(users)}")
                add(nodes, users[-1], *rights(users[-1], "describe"))
                check(nodes, files, users)
            assert {node.kind for node in nodes.nodes.values()} == {kind}
    for future in writer.sent:
        future.result()
    values = [b"%d" % number for number in range(len(writer.sent))]
    assert read(nodes, alice, len(values)) == [values[n::3] for n in range(3)]
    wanted = [("group", ALICE), ("topic", ALICE), ("topic", ALICE)]
    wanted += [("topic", user) for user in users[1:]]
    acls = nodes.admin.describe_acls()
    found = [(str(one.resource_type), one.principal.removeprefix("User:")) for one in acls]
    assert sorted(found) == sorted(wanted)
    nodes.in_sync()
    nodes.end()
    checked([node.data for node in nodes.nodes.values()])
    assert {n: read_meta(str(node.data)) for n, node in nodes.nodes.items()} == before


def read(nodes: CombinedNodes, client: dict[str, str], count: int) -> list[list[bytes | None]]:
    """The values of each partition, by a member of the group."""
    found: list[list[bytes | None]] = [[], [], []]
    with kafkalog.Consumer(
        nodes.bootstrap, TOPIC, group=GROUP, auto_offset_reset="earliest", config=client
    ) as consumer:

        def all_there() -> bool:
            for record in consumer.poll(500):
                found[record.partition].append(record.value)
            return sum(map(len, found)) >= count

        until(all_there, f"{count} records")
    return found
