"""The authorizer decides by StandardAuthorizer's rules, however the ACLs came to be."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import pytest

from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.security.acls import (
    ALL,
    ANY,
    Acl,
    AclFilter,
    Pattern,
    Permission,
    check_acl,
    check_filter,
    parse_principal,
)
from kafkalog.security.authorizer import Authorizer
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import ANONYMOUS, Principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST, OTHER = "10.0.0.1", "0:0:0:0:0:0:0:1"
TOPIC, GROUP = Kind.TOPIC, Kind.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
NAMES = ["a", "ab", "abc", "abd", "b", "*", "ä", "", "𐐷b"]
HELD = {DESCRIBE: (READ, WRITE, Operation.DELETE, Operation.ALTER),
        Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,)}  # fmt: skip


def acl(
    name: str = "t", operation: int = READ, permission: int = ALLOW, principal: str = "User:alice",
    host: str = "*", pattern: int = LITERAL, kind: int = TOPIC,
) -> Acl:  # fmt: skip
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, **options: object) -> Authorizer:
    made = Authorizer(**options)  # type: ignore[arg-type]
    for one in acls:
        made.add(one)
    return made


def naive(
    acls: Iterable[Acl], principal: Principal, host: str, operation: Operation, kind: Kind,
    name: str, default: bool,
) -> bool:  # fmt: skip
    """The rules, one after the other."""
    about = [
        a for a in acls
        if (a.kind == kind
        and (a.name == name if a.pattern == LITERAL else name.startswith(a.name)))
        or (a.kind == kind and a.pattern == LITERAL and a.name == "*")
    ]  # fmt: skip
    applying = [a for a in about if a.principal in ("User:*", str(principal))
                and a.host in ("*", host)]  # fmt: skip
    if any(a.permission == DENY and a.operation in (ALL, operation) for a in applying):
        return False
    implying = (ALL, operation, *HELD.get(operation, ()))
    if any(a.permission == ALLOW and a.operation in implying for a in applying):
        return True
    return default and not about


def drawn(rng: random.Random, names: Sequence[str] = NAMES) -> Acl:
    return acl(
        rng.choice(names), rng.choice([ALL, *Operation]), rng.choice([ALLOW, ALLOW, DENY]),
        rng.choice(["User:alice", "User:bob", "User:*"]), rng.choice(["*", "*", HOST, OTHER]),
        rng.choice([LITERAL, PREFIXED]), rng.choice([TOPIC, TOPIC, GROUP]),
    )  # fmt: skip


@pytest.mark.parametrize("default", [False, True])
def test_the_index_agrees_with_the_rules_read_one_by_one(default: bool) -> None:
    rng = random.Random(39)
    asked = list(itertools.product((ALICE, BOB), (HOST, OTHER), (READ, WRITE, DESCRIBE),
                                   (TOPIC, GROUP),
                                   ("a", "abc", "abcd", "b", "*", "*x", "𐐷bc")))  # fmt: skip
    for _ in range(150):
        acls = {drawn(rng): None for _ in range(rng.randrange(1, 12))}
        ours = authorizer(*acls, allow_if_no_acl=default)
        for one in rng.sample(list(acls), rng.randrange(len(acls))):
            ours.remove(one)
            del acls[one]
        for principal, host, operation, kind, name in rng.sample(asked, 40):
            wanted = naive(acls, principal, host, operation, kind, name, default)
            assert ours.allows(principal, host, operation, kind, name) == wanted, (
                acls, principal, host, operation, kind, name,
            )  # fmt: skip


def test_deny_outweighs_allow_in_whatever_order() -> None:
    for one, other in itertools.permutations([acl(), acl(permission=DENY, principal="User:*")]):
        assert not authorizer(one, other).allows(ALICE, HOST, READ, TOPIC, "t")


def test_an_operation_is_implied_when_it_is_allowed_but_not_when_it_is_denied() -> None:
    assert authorizer(acl()).allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    assert authorizer(acl(), acl(operation=WRITE, permission=DENY)).allows(
        ALICE, HOST, DESCRIBE, TOPIC, "t"
    )
    configs = authorizer(acl(operation=Operation.ALTER_CONFIGS))
    assert configs.allows(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not configs.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_denials_do_not_hold_for_super_users() -> None:
    denied = acl(operation=ALL, permission=DENY, principal="User:*", name="*")
    assert authorizer(denied, super_users=["User:alice"]).allows(ALICE, HOST, READ, TOPIC, "t")
    assert not authorizer(denied, super_users=["User:alice"]).allows(BOB, HOST, READ, TOPIC, "t")


def test_the_default_holds_for_resources_that_no_acl_names() -> None:
    ours = authorizer(acl("t", principal="User:bob"), allow_if_no_acl=True)
    assert ours.allows(ALICE, HOST, READ, TOPIC, "other")
    assert not ours.allows(ALICE, HOST, READ, TOPIC, "t")
    ours.remove(acl("t", principal="User:bob"))
    assert ours.allows(ALICE, HOST, READ, TOPIC, "t")


def test_anonymous_is_a_principal_as_any_other() -> None:
    ours = authorizer(acl(principal="User:ANONYMOUS"))
    assert ours.allows(ANONYMOUS, HOST, READ, TOPIC, "t")
    assert not ours.allows(ALICE, HOST, READ, TOPIC, "t")


def test_the_wildcard_is_of_principals_of_type_user_alone() -> None:
    ours = authorizer(acl(principal="Group:*"))
    assert not ours.allows(ALICE, HOST, READ, TOPIC, "t")
    assert not ours.allows(Principal("Group", "x"), HOST, READ, TOPIC, "t")
    # `User:*` is for principals of every type, as in Kafka.
    assert authorizer(acl(principal="User:*")).allows(Principal("G", "x"), HOST, READ, TOPIC, "t")


def test_numbers_that_are_not_known_permit_nothing() -> None:
    ours = authorizer(acl(operation=99), acl(pattern=9), acl(kind=77))
    assert not ours.allows(ALICE, HOST, READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("acls", "wanted"),
    [
        ([], False),
        ([acl("t", WRITE)], True),
        ([acl("t", READ)], False),
        ([acl("t", ALL)], True),
        ([acl("t", WRITE), acl("t", WRITE, DENY)], False),
        ([acl("t", WRITE), acl("t", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("tu", WRITE), acl("t", ALL, DENY, "User:*", pattern=PREFIXED)], False),
        ([acl("t", WRITE, pattern=PREFIXED), acl("tu", WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("t", WRITE, pattern=PREFIXED), acl("t", WRITE, DENY)], True),
        ([acl("*", WRITE), acl("t", WRITE, DENY)], True),
        ([acl("t", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("t", WRITE), acl("u", WRITE), acl("t", WRITE, DENY)], True),
        ([acl("t", WRITE, host=OTHER)], False),
        ([acl("t", WRITE, principal="User:bob")], False),
    ],
)
def test_a_deny_that_dominates_hides_an_allow(acls: list[Acl], wanted: bool) -> None:
    assert authorizer(*acls).allows_any(ALICE, HOST, WRITE, TOPIC) == wanted


def test_ten_thousand_acls_cost_no_more_than_ten() -> None:
    """Work is counted, not time: the places looked at for a name."""
    ours = authorizer(
        *(acl(f"topic-{n:05}", principal=f"User:u{n % 7}") for n in range(5000)),
        *(acl(f"group-{n:05}", principal=f"User:u{n}", pattern=PREFIXED) for n in range(3000)),
        *(acl("shared", principal=f"User:v{n}") for n in range(2000)),
    )
    for n in range(2000):
        assert ours.allows(Principal("User", f"v{n}"), HOST, READ, TOPIC, "shared")
        assert not ours.allows(ALICE, HOST, READ, TOPIC, f"topic-{n:05}")
    assert len(list(ours._places(TOPIC, "group-00077-x"))) == 1


# ---- bindings and filters ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (AclFilter(), True),
        (AclFilter(kind=TOPIC, pattern=LITERAL, name="t"), True),
        (AclFilter(kind=GROUP), False),
        (AclFilter(name="t"), True),
        (AclFilter(name="tu"), False),
        (AclFilter(name="t", pattern=PREFIXED), False),
        (AclFilter(pattern=PREFIXED), False),
        (AclFilter(name="t", pattern=Pattern.MATCH), True),
        (AclFilter(name="tu", pattern=Pattern.MATCH), False),
        (AclFilter(principal="User:alice", host="*"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host=HOST), False),
        (AclFilter(operation=READ, permission=ALLOW), True),
        (AclFilter(operation=ALL), False),
        (AclFilter(permission=DENY), False),
    ],
)
def test_filters_select_as_kafkas_do(one: AclFilter, wanted: bool) -> None:
    assert one.matches(acl()) == wanted


def test_a_match_selects_the_acls_that_apply_to_a_name() -> None:
    one = AclFilter(name="tuv", pattern=Pattern.MATCH)
    assert one.matches(acl("tu", pattern=PREFIXED)) and one.matches(acl("*"))
    assert not one.matches(acl("*", pattern=PREFIXED)) and not one.matches(acl("tu"))


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (acl(kind=ANY), "Invalid resourceType ANY"), (acl(kind=0), "Invalid resourceType UNKNOWN"),
        (acl(pattern=ANY), "Invalid patternType ANY"),
        (acl(pattern=2), "Invalid patternType MATCH"),
        (acl(operation=ANY), "Invalid operation ANY"), (acl(operation=0), "Invalid operation UNKN"),
        (acl(permission=ANY), "Invalid permissionType ANY"), (acl(name=""), "empty resource name"),
        (acl("x", kind=Kind.CLUSTER), "only valid name"), (acl(principal="alice"), "no colon"),
        (acl(host=""), "Host pattern"), (acl(host="10.0.0.0/33"), "CIDR notation"),
        (acl(host="10.0.0.0/255.0.0.0"), "CIDR"), (acl(host="x/8"), "CIDR"),
        (acl(host="::/129"), "CIDR"),
        (acl("x" * 40_000), "40000 bytes"),
    ],
)  # fmt: skip
def test_invalid_acls_are_refused(bad: Acl, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        check_acl(bad)


@pytest.mark.parametrize(
    ("pattern", "host", "wanted"),
    [
        ("10.0.0.0/8", "10.1.2.3", True), ("10.1.2.3/8", "10.9.9.9", True),
        ("10.0.0.0/8", "11.0.0.0", False), ("0.0.0.0/0", "1.2.3.4", True),
        ("10.0.0.1/32", "10.0.0.1", True), ("10.0.0.0/31", "10.0.0.1", True),
        ("fe80::/10", "fe80:0:0:0:0:0:0:1%eth0", True), ("::1/128", OTHER, True),
        ("::/0", "10.0.0.1", False), ("0.0.0.0/0", OTHER, False), ("::1", OTHER, False),
        ("*", "unix", True), ("0.0.0.0/0", "unix", False), ("unix", "unix", True),
    ],
)  # fmt: skip
def test_hosts_match_as_a_whole_or_by_a_mask(pattern: str, host: str, wanted: bool) -> None:
    one = acl(host=pattern)
    check_acl(one)
    assert authorizer(one).allows(ALICE, host, READ, TOPIC, "t") == wanted


def test_masks_that_only_deny() -> None:
    """As in Kafka 3.9; the resource is named all the same, so the default does not hold."""
    masked = acl(host="10.0.0.0/8")
    found = Authorizer(allow_if_no_acl=True, masks_allow=False)
    found.add(masked)
    found.add(acl(name="*", principal="User:*", kind=GROUP))
    found.add(acl(name="*", principal="User:*", kind=GROUP, host="10.0.0.0/8",
                  permission=DENY))  # fmt: skip
    for host in ("10.1.2.3", "10.0.0.0/8", "11.0.0.1"):
        assert not found.allows(ALICE, host, READ, TOPIC, "t"), host
        assert list(found.own(ALICE, host, TOPIC)) == []
    assert not found.allows(ALICE, "10.1.2.3", READ, GROUP, "g")
    assert found.allows(ALICE, "11.0.0.1", READ, GROUP, "g")


def test_masks_want_the_level_that_has_them() -> None:
    with pytest.raises(UnsupportedVersion, match=r"4\.4-IV1"):
        check_acl(acl(host="10.0.0.0/8"), masks=False)


def test_valid_acls_and_filters_pass() -> None:
    for kind in Kind:
        for operation in (ALL, *Operation):
            name = "kafka-cluster" if kind == Kind.CLUSTER else "n"
            check_acl(acl(name, operation, kind=kind))
    check_filter(AclFilter())
    check_filter(AclFilter(TOPIC, "t", Pattern.MATCH, "User:alice", "*", ALL, DENY))


@pytest.mark.parametrize(
    "bad",
    [AclFilter(kind=0), AclFilter(pattern=0), AclFilter(operation=99), AclFilter(permission=0)],
)
def test_filters_with_unknown_numbers_are_refused(bad: AclFilter) -> None:
    with pytest.raises(InvalidRequest, match="Unknown"):
        check_filter(bad)


def test_a_principal_has_a_type_and_a_name() -> None:
    assert parse_principal("User:CN=a:b") == Principal("User", "CN=a:b")
