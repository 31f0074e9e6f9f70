"""Reads what `precheck` needs: from ZooKeeper, and from the other brokers.  Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kafkalog import errors
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.transport import Address, Options
from kafkalog.cluster.node.defaults import NAMES
from kafkalog.cluster.node.facts import (
    AUTHORIZER,
    CONTROL,
    INNER,
    INNER_PROTOCOL,
    OURS,
    PLAINTEXT,
    Facts,
    Peer,
)
from kafkalog.cluster.node.precheck import BROKER_FORMAT, MIGRATION, PROTOCOL_VERSION
from kafkalog.directory.parallel import in_parallel
from kafkalog.metadata.image import BROKER, Broker, MetadataImage
from kafkalog.replication.inter_broker import NodeSecurity, connect
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import acls, tree
from kafkalog.zookeeper.loading import PROTOCOLS
from kafkalog.zookeeper.session import Session

__all__ = ["gather"]

NAMED_MAX = 100
"""Resources with rules of each kind, and users with credentials, that are kept."""
PATIENCE_MS = 2_000
"""For a connection, for versions, and for an answer."""
ANSWER_BYTES_MAX = 1 << 20
ASKED_AT_ONCE = 16
ASKED = sorted({*NAMES, AUTHORIZER, CONTROL, INNER, INNER_PROTOCOL, OURS, BROKER_FORMAT, MIGRATION,
                PROTOCOL_VERSION})  # fmt: skip
STATIC_SOURCES = (4, 5)
"""Kafka's ConfigSource of values from a properties file, and of defaults."""


def gather(
    session: Session, image: MetadataImage, node: int,
    securities: Mapping[str, NodeSecurity] | None = None,
) -> Facts:  # fmt: skip
    """The cluster in `image` as the broker `node` finds it; other brokers are asked for their
    settings, which takes a few seconds if one does not answer.  `securities`: the node's, by
    listener; without them, brokers are asked in plain text only.

    Raises: ZooKeeperAway.
    """
    others = [one for number, one in sorted(image.brokers.items()) if number != node]
    tokens = len(session.children(tree.DELEGATION_TOKENS) or ())
    users = tuple(sorted({user for user, _ in image.scram})[:NAMED_MAX])
    peers = _peers(others, securities or {})
    return Facts(image, peers, _rules(session), users, tokens, _is_kraft(session))


# ---- from ZooKeeper ------------------------------------------------------------------------------


def _rules(session: Session) -> tuple[str, ...]:
    found: list[str] = []
    for root in acls.ROOTS.values():
        for kind in session.children(root) or ():
            names = session.children(f"{root}/{kind}") or ()
            found += [f"{kind}/{name}" for name in names[:NAMED_MAX]]
    return tuple(found)


def _is_kraft(session: Session) -> bool:
    znode = session.read(tree.CONTROLLER)
    try:
        return znode is not None and tree.read_controller(znode.data).kraft_epoch >= 0
    except errors.BadZnode:
        return False


# ---- from brokers --------------------------------------------------------------------------------


def _peers(others: list[Broker], securities: Mapping[str, NodeSecurity]) -> tuple[Peer, ...]:
    ask = partial(_asked, securities)
    found = in_parallel(max(1, min(len(others), ASKED_AT_ONCE)), others, ask)
    return tuple(_peer(one, said) for one, said in zip(others, found, strict=True))


def _peer(one: Broker, said: dict[str, str] | Exception) -> Peer:
    protocols = {number: name for name, number in PROTOCOLS.items()}
    endpoints = {name: protocols.get(number, "") for name, _, _, number in one.endpoints}
    made = partial(Peer, one.id, endpoints, one.rack)
    if not isinstance(said, Exception):
        return made(said)
    denied = getattr(said, "code", None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return made(None, str(said), denied)


def _asked(securities: Mapping[str, NodeSecurity], one: Broker) -> dict[str, str]:
    """A broker's settings, over a listener by which this node reaches others, or over the first one
    in plain text.

    Raises: PeerGone, Timeout, BadAnswer; UnsupportedVersion; AuthenticationFailed; what the broker
    answers.
    """
    ways = {Address(host, port): securities.get(name) for name, host, port, number in one.endpoints
            if number == _number(securities.get(name))}  # fmt: skip
    if not ways:
        raise errors.UnsupportedVersion(f"broker {one.id} has no listener that this node can use")
    address, security = min(ways.items(), key=lambda way: way[1] is None)
    patience = Options(
        connect_timeout_ms=PATIENCE_MS,
        request_timeout_ms=PATIENCE_MS,
        response_bytes_max=ANSWER_BYTES_MAX,
        security=security,
    )
    connection = connect(address, patience)
    try:
        row = {"resource_type": BROKER, "resource_name": str(one.id), "configuration_keys": ASKED}
        body = {"resources": [row], "include_synonyms": True}
        for answer in connection.call(apis.DESCRIBE_CONFIGS, body).results:
            check_code(answer.error_code, f"settings of broker {one.id}", answer.error_message)
            return dict(_static(answer.configs))
        raise errors.BadAnswer(f"broker {one.id}: no answer to DescribeConfigs")
    finally:
        connection.close()


def _number(security: NodeSecurity | None) -> int:
    return PROTOCOLS[PLAINTEXT] if security is None else security.number


def _static(configs: Iterable[Any]) -> Iterable[tuple[str, str]]:
    """Values without those that were set at run time, which every node reads in ZooKeeper."""
    for one in configs:
        for each in one.synonyms:
            if each.name == one.name and each.source in STATIC_SOURCES and each.value is not None:
                yield one.name, each.value
                break
