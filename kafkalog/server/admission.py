"""May this principal do this, and how long must it wait?  Asked for every request.

Dispatch asks here for the requests that Python answers.  C answers Produce and Fetch by a table of
its own (`_native/plane/admit.h`), which gets the same rights from here.
"""

import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kafkalog._native import lib
from kafkalog.config.protection import refuse_protection
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import BROKER
from kafkalog.security.permissions import IMPLIED_BY, SUPPORTED, Kind, Operation
from kafkalog.security.principal import ANONYMOUS as ANONYMOUS_PRINCIPAL
from kafkalog.security.principal import Principal
from kafkalog.server.network.reactor import ANONYMOUS
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.request import Peer

__all__ = ["ALL", "Admission", "Right", "check_open_to_all"]

Right = tuple[Operation, Kind]
"""An operation on all resources of a kind."""
ALL: frozenset[Right] = frozenset(
    (operation, kind) for kind, operations in SUPPORTED.items() for operation in operations
)

_IN_C: dict[Right, int] = {
    (Operation.WRITE, Kind.TOPIC): lib.KL_MAY_WRITE,
    (Operation.READ, Kind.TOPIC): lib.KL_MAY_READ,
    (Operation.CLUSTER_ACTION, Kind.CLUSTER): lib.KL_MAY_REPLICATE,
}
_DENIED = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Kind.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Admission:
    """The rights of principals, and the number of each.  Safe to use from many threads.

    A number stands for a principal at a host, and belongs to the connections that have it.
    """

    def __init__(self, reactor: "Reactor") -> None:
        """`reactor`: gets the rights that Produce and Fetch ask for."""
        self._reactor = reactor
        self._lock = threading.Lock()  # guards what follows
        self._principals = {ANONYMOUS: ANONYMOUS_PRINCIPAL}
        self._numbers: dict[tuple[Principal, str], int] = {}
        self._rights: dict[int, frozenset[Right]] = {}
        self.set_rights(ANONYMOUS, ALL)

    # ---- principals ----------------------------------------------------------------------------

    def principal(self, number: int) -> Principal:
        """The principal of a number."""
        return self._principals[number]

    def number_of(self, principal: Principal, host: str) -> int:
        """The number for a connection of this principal from a host (Peer.host), for
        Reactor.set_principal.  It is released with its last connection.

        Raises: KafkalogError: too many principals are connected; the connection is to be closed.
        """
        with self._lock:
            if principal == ANONYMOUS_PRINCIPAL:
                return ANONYMOUS
            number = self._numbers.setdefault((principal, host), len(self._numbers) + 1)
            self._principals[number] = principal
        self.set_rights(number, ALL)
        return number

    def guards(self, peer: "Peer") -> bool:
        """True if there are rules, and the caller's requests are checked by them."""
        return False

    # ---- rights --------------------------------------------------------------------------------

    def allows(self, peer: "Peer", operation: Operation, kind: Kind, name: str) -> bool:
        """True if the caller may do this to a resource, which need not exist."""
        return self.allows_any(peer, operation, kind)

    def allowed(
        self, peer: "Peer", operation: Operation, kind: Kind, names: Iterable[str]
    ) -> set[str]:
        """Those of the names to which the caller may do this."""
        return {name for name in names if self.allows(peer, operation, kind, name)}

    def allows_any(self, peer: "Peer", operation: Operation, kind: Kind) -> bool:
        """True if the caller may do this to at least one resource of a type, whether such a one
        exists or not: Kafka's authorizeByResourceType."""
        rights = self._rights.get(peer.principal, frozenset())
        implying = IMPLIED_BY.get(operation, frozenset())
        return any((one, kind) in rights for one in (operation, *implying))

    def operations(self, peer: "Peer", kind: Kind, name: str) -> int:
        """The operations that the caller may do to a resource, one bit each, as responses hold
        them; of those that its type has."""
        return sum(
            1 << operation for operation in SUPPORTED[kind]
            if self.allows(peer, operation, kind, name)
        )  # fmt: skip

    def set_rights(self, number: int, rights: Collection[Right]) -> None:
        """Replace the rights of a principal on all resources; requests that begin after the return
        obey them.

        Raises: ArgumentError, NoMemory.
        """
        self._rights[number] = frozenset(rights)
        flags = [flag for right, flag in _IN_C.items() if right in self._rights[number]]
        self._reactor.set_permit(number, sum(flags))

    def denied(self, number: int, needs: Collection[Right]) -> ErrorCode | None:
        """The error for a principal that has none of the rights that a request asks for, or None.

        Rights may stand for each other, as CREATE on the cluster and CREATE on the topic do, so
        one of them admits the request; a handler checks single resources.
        """
        if not needs or not self._rights.get(number, frozenset()).isdisjoint(needs):
            return None
        return next(_DENIED[kind] for _, kind in needs)


def check_open_to_all(image: "MetadataImage") -> None:
    """Refuse metadata with permissions or delegation tokens.

    Raises: ArgumentError (ACLs, delegation tokens), InvalidSetting.
    """
    found = {
        "ACLs": len(image.acls),
        "delegation tokens": len(image.tokens),
    }
    some = ", ".join(f"{count} {what}" for what, count in found.items() if count)
    if some:
        raise ArgumentError(
            f"the metadata hold {some}, which protect the directory and are not supported yet; "
            "it is not served until Apache Kafka's tools have removed them"
        )
    for resource in ("", str(image.node_id)):
        for name, value in image.config(BROKER, resource).items():
            where = f"the metadata, broker {resource or 'default'}: "
            refuse_protection(name, value, where, clustered=True)
