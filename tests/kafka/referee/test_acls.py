"""The authorizer decides as Apache Kafka's own StandardAuthorizer does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from kafkalog.security.acls import ALL, Acl, Pattern, Permission, parse_principal
from kafkalog.security.authorizer import Authorizer
from kafkalog.security.permissions import Kind, Operation
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.slow]

SETS = 400
ASKED = 25
"""Questions to each set of ACLs."""
# Without names that begin with the wildcard and go on: to these Kafka applies no ACL for `*`, not
# even one that denies, against its own documentation; ours applies it.
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "*", "ä", "𐐷b", "hardcode", "hard", "kafka-cluster"]
PRINCIPALS = [
    "User:alice",
    "User:bob",
    "User:ANONYMOUS",
    "User:*",
    "Group:alice",
    "User:CN=a:b,O=c",
]
CALLERS = [one for one in PRINCIPALS if one != "User:*"]  # Kafka fails if one has this name
HOSTS = ["10.0.0.1", "10.0.0.2", "192.168.1.5", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:7"]
HOST_PATTERNS = [
    "*",
    "*",
    *HOSTS,
    "10.0.0.0/31",
    "10.0.0.0/8",
    "0.0.0.0/0",
    "fe80::/10",
    "::/0",
    "::1",
]


def drawn(rng: random.Random) -> Acl:
    return Acl(
        rng.choice([Kind.TOPIC, Kind.TOPIC, Kind.TOPIC, *Kind]), rng.choice(NAMES),
        rng.choice([Pattern.LITERAL, Pattern.PREFIXED]), rng.choice(PRINCIPALS),
        rng.choice(HOST_PATTERNS), rng.choice([ALL, *Operation]), rng.choice(list(Permission)),
    )  # fmt: skip


def questions(rng: random.Random) -> Iterator[tuple[str, str, str, Operation, Kind, str]]:
    for _ in range(ASKED):
        what = rng.choice(["one", "one", "any"])
        kind = rng.choice([Kind.TOPIC, Kind.TOPIC, *Kind])
        yield (what, rng.choice(CALLERS), rng.choice(HOSTS), rng.choice(list(Operation)), kind,
               rng.choice([*NAMES, *(f"{name}x" for name in NAMES if name != "*")]))  # fmt: skip


def test_kafka_decides_in_the_same_way() -> None:
    rng = random.Random(4400)
    lines, ours, asked = [], [], []
    for _ in range(SETS):
        supers, default = rng.choice(["", "User:bob", "User:bob;Group:alice"]), rng.random() < 0.3
        authorizer = Authorizer(supers.split(";") if supers else (), default)
        lines.append(f"set\t{supers}\t{str(default).lower()}")
        acls = {drawn(rng) for _ in range(rng.randrange(9))}
        for acl in sorted(acls):
            authorizer.add(acl)
            lines.append("\t".join(["acl", *(f"{field:d}" if isinstance(field, int) else field
                                             for field in acl)]))  # fmt: skip
        for what, who, host, operation, kind, name in questions(rng):
            principal = parse_principal(who)
            if what == "any":
                found = authorizer.allows_any(principal, host, operation, kind)
            else:
                found = authorizer.allows(principal, host, operation, kind, name)
            lines.append(f"{what}\t{who}\t{host}\t{int(operation)}\t{int(kind)}\t{name}")
            ours.append("1" if found else "0")
            asked.append((sorted(acls), lines[-1], supers, default))
    try:
        said = apache.ask("Acls", text="\n".join(lines)).split()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    differing = [(a, t) for a, o, t in zip(asked, ours, said, strict=True) if o != t]
    assert differing == [] and 0.1 < ours.count("1") / len(ours) < 0.9
