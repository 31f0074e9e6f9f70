"""Share groups, and consumer groups whose members heartbeat, on three of our nodes with SASL_SSL
everywhere, users of SCRAM, and ACLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding, AclBindingFilter
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from tests.kafka.cluster.members import OURS, until
from tests.kafka.quorum.combined import CombinedNodes
from tests.kafka.quorum.secured import MECHANISM, by_scram, dressed
from tests.support.secured import ALICE, PASSWORD, Papers, papers

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

NODES = (1, 2, 3)
TOPIC, MEMBERS, SHARERS = "letters", "members", "sharers"
SECRET = "S3CRET"
WITH_GROUPS, STRANGER = "with groups", "stranger"
"""Users with rights for the groups, and with none."""
COUNT = 60


@pytest.fixture
def files(tmp_path: Path) -> Papers:
    return papers(tmp_path)


@pytest.fixture
def nodes(tmp_path: Path, files: Papers) -> Iterator[CombinedNodes]:
    made = CombinedNodes(
        tmp_path / "nodes", NODES,
        protected=lambda listeners: dressed(files, {"listeners": listeners}),
    )  # fmt: skip
    with made:
        made.begin_all(NODES, OURS)
        made.create(TOPIC, *(NODES[n:] + NODES[:n] for n in range(3)))
        for user in (WITH_GROUPS, STRANGER):
            one = UserScramCredentialUpsertion(user, MECHANISM, SECRET)
            made.admin.alter_user_scram_credentials([one]).check()
        made.admin.create_acls([
            AclBinding("topic", TOPIC, f"User:{ALICE}", "read"),
            *(AclBinding("group", group, f"User:{user}", "read")
              for group in (MEMBERS, SHARERS) for user in (ALICE, WITH_GROUPS)),
        ]).check()  # fmt: skip
        own = {"share.auto.offset.reset": "earliest"}
        made.admin.alter_configs({("group", SHARERS): own}).check()
        yield made


def as_member(nodes: CombinedNodes, client: dict[str, str]) -> kafkalog.Consumer:
    return kafkalog.Consumer(
        nodes.bootstrap, TOPIC, group=MEMBERS, auto_offset_reset="earliest",
        config={**client, "group.protocol": "consumer"},
    )  # fmt: skip


def as_sharer(nodes: CombinedNodes, client: dict[str, str]) -> kafkalog.ShareConsumer:
    return kafkalog.ShareConsumer(nodes.bootstrap, TOPIC, group=SHARERS, config=client)


def send(nodes: CombinedNodes, begin: int) -> set[bytes]:
    """Send that many records."""
    values = [b"%d" % number for number in range(begin, begin + COUNT)]
    with kafkalog.Producer(nodes.bootstrap, acks="all", config=nodes.client) as producer:
        for number, value in enumerate(values):
            producer.send(TOPIC, value, partition=number % 3)
    return {*values}


def refused(consumer: Any) -> bool:
    """True once the consumer is not allowed to go on."""
    try:
        consumer.poll(200)
    except errors.AuthorizationFailed:
        return True
    return False


@pytest.mark.parametrize("make", [as_member, as_sharer], ids=["consumer group", "share group"])
def test_members_go_on_with_their_rights_only(
    nodes: CombinedNodes, files: Papers, make: Any
) -> None:
    """Two read everything while nodes die in turn; those that lack the group or the topic are
    refused, and so is a member whose right is taken away."""
    alice = by_scram(files, ALICE, PASSWORD)
    seen: Counter[bytes] = Counter()
    wanted: set[bytes] = set()
    with make(nodes, alice) as one, make(nodes, alice) as other:

        def all_there() -> bool:
            for consumer in (one, other):
                seen.update(record.value for record in consumer.poll(200))
            return wanted <= seen.keys()

        wanted |= send(nodes, 0)
        until(all_there, "all records")
        assert seen.keys() == wanted
        for round_, number in enumerate(NODES, 1):
            nodes.nodes[number].kill()
            nodes.all_known()
            wanted |= send(nodes, round_ * COUNT)
            until(all_there, f"all records without {number}")
            nodes.begin(number)
            nodes.in_sync()
        for user in (WITH_GROUPS, STRANGER):
            with make(nodes, by_scram(files, user, SECRET)) as third:
                until(lambda third=third: refused(third), f"{user} is refused")
        nodes.admin.delete_acls([AclBindingFilter("topic", TOPIC)]).check()
        until(lambda: refused(one), "its right is gone")
        nodes.admin.create_acls([AclBinding("topic", TOPIC, f"User:{ALICE}", "read")]).check()
    assert seen.keys() == wanted
