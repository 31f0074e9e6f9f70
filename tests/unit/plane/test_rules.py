"""C decides about topics and transactional ids by the same ACLs as the authorizer."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from kafkalog._native import ffi, lib
from kafkalog.errors import ArgumentError
from kafkalog.security.acls import ALL, Acl, Pattern, Permission
from kafkalog.security.authorizer import Authorizer
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.server.network.reactor import ANONYMOUS, RIGHTS
from kafkalog.server.rules import NOTHING, Rules, rules_of
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.plane.peer import one
from tests.unit.plane.test_sessions import again, begin

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WRITE, READ = lib.KL_RULE_WRITE, lib.KL_RULE_READ
NO_WRITE, NO_READ = lib.KL_RULE_NO_WRITE, lib.KL_RULE_NO_READ
ALICE, HOST = Principal("User", "alice"), "10.0.0.1"


def rules(everywhere: int = 0, **names: tuple[int, int]) -> Rules:
    return Rules(everywhere, {name.encode(): bits for name, bits in names.items()})


def put(served: Any, *own: Rules, common: Rules = NOTHING, rights: int = 0,
        unnamed: bool = False) -> None:  # fmt: skip
    """Topics' rules of the client, and those of all."""
    served.reactor.set_rules(ANONYMOUS, 0, [NOTHING, NOTHING], unnamed=False)
    served.reactor.outdate_rules([common, NOTHING])
    topics, ids = (*own, NOTHING, NOTHING)[:2]
    served.reactor.set_rules(ANONYMOUS, rights, [topics, ids], unnamed=unnamed)


def may(served: Any, peer: Any) -> tuple[bool, bool]:
    """True if the client may write to t; and the same for reading."""
    wrote = peer.produce_one(one()).error_code
    read = peer.fetch_one(0).error_code
    assert {wrote, read} <= {0, DENIED}
    return wrote == 0, read == 0


@pytest.mark.parametrize(
    ("own", "common", "wanted"),
    [
        (rules(), rules(), (False, False)),
        (rules(t=(READ, 0)), rules(), (False, True)),
        (rules(t=(WRITE | READ, 0)), rules(), (True, True)),
        (rules(), rules(READ | WRITE), (True, True)),
        (rules(NO_READ), rules(READ | WRITE), (True, False)),
        (rules(READ | WRITE), rules(t=(NO_WRITE, 0)), (False, True)),
        (rules(t=(0, WRITE)), rules(), (True, False)),
        (rules(tt=(0, WRITE), s=(0, WRITE)), rules(), (False, False)),
    ],
)
def test_rules_about_single_topics(served, peer, own, common, wanted):
    served.put()
    put(served, own, common=common)
    assert may(served, peer) == wanted


def test_a_topic_without_acls_can_be_allowed(served, peer):
    served.put()
    put(served, unnamed=True)
    assert may(served, peer) == (True, True)
    put(served, common=rules(t=(lib.KL_RULE_NAMED, 0)), unnamed=True)
    assert may(served, peer) == (False, False)


def test_names_of_missing_topics_are_judged_as_well(served, peer):
    put(served, rules(missing=(READ, 0)))
    assert peer.fetch_one(0, ("other", 0)).error_code == DENIED
    peer.send_fetch({("missing", 0): 0})
    served.reactor.again(served.reactor.take(10_000).id)
    (topic,) = peer.receive().responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_by_id_are_judged_by_their_names(served, peer):
    served.put()
    put(served, rules(t=(READ, 0)))
    assert peer.fetch_one(0, version=13).error_code == 0
    put(served, rules(u=(READ, 0)))
    assert peer.fetch_one(0, version=13).error_code == DENIED
    peer.topic_ids["t"] = uuid.uuid4()
    peer.send_fetch({("t", 0): 0}, version=13)
    served.reactor.again(served.reactor.take(10_000).id)
    (topic,) = peer.receive().responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_recreated_topic_is_judged_by_its_name(served, peer):
    served.put()
    put(served, rules(t=(READ, 0)))
    assert peer.fetch_one(0).error_code == 0
    served.reactor.remove_topic("t")
    served.put(topic="u")
    assert peer.fetch_one(0, ("u", 0)).error_code == DENIED


def test_followers_need_a_right_on_the_cluster(served, peer):
    served.put()
    put(served, rules(READ | WRITE))
    assert peer.fetch_one(0, replica_id=2).error_code == DENIED
    put(served, rights=lib.KL_MAY_REPLICATE)
    assert peer.fetch_one(0, replica_id=2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_super_users_need_no_rule(served, peer):
    served.put()
    put(served, rules(NO_READ | NO_WRITE), rights=RIGHTS)
    assert may(served, peer) == (True, True)


def test_outdated_rules_are_asked_for_before_anything_is_decided(served, peer):
    """Both of requests that C knows to allow and to deny, and again after the request came back
    outdated once more."""
    log = served.put()
    put(served, rules(t=(READ | WRITE, 0)))
    assert may(served, peer) == (True, True)
    served.reactor.outdate_rules([NOTHING, NOTHING])
    peer.send_produce({("t", 0): one()})
    for _ in range(3):
        taken = served.reactor.take(10_000)
        served.reactor.again(taken.id)  # still outdated
    taken = served.reactor.take(10_000)
    end = log.end_offset
    served.reactor.set_rules(ANONYMOUS, 0, [rules(t=(NO_WRITE, 0)), NOTHING], unnamed=False)
    served.reactor.again(taken.id)
    (topic,) = peer.receive().responses
    assert topic.partition_responses[0].error_code == DENIED
    assert log.end_offset == end


def test_a_fetch_session_obeys_changed_rules_at_once(served, peer):
    served.put(partitions=2).append(b"v")
    put(served, rules(t=(READ, 0)))
    session = begin(peer, {("t", 0): 1, ("t", 1): 0}).session_id
    assert again(peer, session, 1).responses == []
    put(served)
    denied = again(peer, session, 2).responses
    assert [p.error_code for t in denied for p in t.partitions] == [DENIED, DENIED]
    put(served, rules(t=(0, READ)))
    (topic,) = again(peer, session, 3).responses
    assert {p.error_code for p in topic.partitions} == {0}


def test_a_permit_ends_the_rules(served, peer):
    served.put()
    put(served)
    served.reactor.set_permit(ANONYMOUS, RIGHTS)
    served.reactor.outdate_rules([NOTHING, NOTHING])
    assert may(served, peer) == (True, True)


def test_c_and_the_authorizer_agree(served, peer, rng: random.Random) -> None:
    """Drawn ACLs: many prefixes of each other, several principals and hosts."""
    names = ["a", "ab", "abc", "abcd", "abx", "b", "ba", "t", "tt", "zz"]
    for name in names:
        served.put(topic=name)
    for _ in range(100):
        acls = {
            Acl(Kind.TOPIC, rng.choice([*names, "*", ""]), rng.choice(list(Pattern)[1:]),
                rng.choice(["User:alice", "User:*", "User:bob"]),
                rng.choice(["*", HOST, "10.0.0.0/8", "10.0.0.2"]),
                rng.choice([ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
                rng.choice(list(Permission)))
            for _ in range(rng.randrange(10))
        }  # fmt: skip
        authorizer = Authorizer((), rng.random() < 0.5)
        for acl in acls:
            authorizer.add(acl)
        named = authorizer.names(Kind.TOPIC) if authorizer.allow_if_no_acl else ()
        put(served, rules_of(authorizer.own(ALICE, HOST, Kind.TOPIC)),
            common=rules_of(authorizer.common(Kind.TOPIC), named),
            unnamed=authorizer.allow_if_no_acl)  # fmt: skip
        read = peer.fetch({(name, 0): 0 for name in names}, max_wait_ms=0).responses
        wrote = peer.produce({(name, 0): one() for name in names}).responses
        found = {
            (operation, topic.topic if operation == Operation.READ else topic.name):
            (topic.partitions if operation == Operation.READ else topic.partition_responses)[0]
            for operation, topics in ((Operation.READ, read), (Operation.WRITE, wrote))
            for topic in topics
        }  # fmt: skip
        for (operation, name), partition in found.items():
            wanted = authorizer.allows(ALICE, HOST, operation, Kind.TOPIC, name)
            assert partition.error_code == (0 if wanted else DENIED), (acls, name, operation)
        assert len(found) == 2 * len(names)


@pytest.mark.parametrize(
    "bad", [Rules(64, {}), Rules(0, {b"t": (64, 0)}), Rules(-1, {}), Rules(0, {b"t": (0, 128)})]
)
def test_invalid_rules_are_refused(served, bad):
    with pytest.raises(ArgumentError):
        served.reactor.set_rules(ANONYMOUS, 0, [bad, NOTHING], unnamed=False)
    with pytest.raises(ArgumentError):
        served.reactor.outdate_rules([NOTHING, bad])


def test_unsorted_rules_are_refused(served) -> None:
    for names in ([b"b", b"a"], [b"a", b"a"], [b"aa", b"a"]):
        rules = ffi.new("kl_rules[]", lib.KL_RULES_KINDS)
        alive = (ffi.from_buffer("uint8_t[]", b"".join(names)),
                 ffi.new("int32_t[]", list(map(len, names))), ffi.new("uint8_t[]", 4))  # fmt: skip
        rules[0].names, rules[0].name_bytes, rules[0].bits = alive
        rules[0].count = 2
        assert lib.kl_server_outdate_rules(served.reactor._c, rules) == lib.KL_E_ARGUMENT
