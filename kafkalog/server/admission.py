"""May this principal do this, and how long must it wait?  Asked for every request.

Dispatch asks here for the requests that Python answers.  C answers Produce and Fetch by a table of
its own (`_native/plane/admit.h`), which gets the same rights from here.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkalog._native import lib
from kafkalog.config.protection import refuse_protection
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import BROKER
from kafkalog.security.permissions import SUPPORTED, Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.server.network.reactor import ANONYMOUS
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.server.network.reactor import Reactor

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
}


class Admission:
    """The rights of each principal, by its number.  Safe to use from many threads.

    Nobody authenticates so far, so all are ANONYMOUS, which may do everything.
    """

    def __init__(self, reactor: "Reactor") -> None:
        """`reactor`: gets the rights that Produce and Fetch ask for."""
        self._reactor = reactor
        self._principals = {ANONYMOUS: Principal("User", "ANONYMOUS")}
        self._rights: dict[int, frozenset[Right]] = {}
        self.set_rights(ANONYMOUS, ALL)

    def principal(self, number: int) -> Principal:
        """The principal of a number."""
        return self._principals[number]

    def set_rights(self, number: int, rights: Collection[Right]) -> None:
        """Replace the rights of a principal; requests that begin after the return obey them.

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
    """Refuse metadata with permissions or credentials.

    Raises: ArgumentError (ACLs, SCRAM credentials, delegation tokens), InvalidSetting.
    """
    found = {
        "ACLs": len(image.acls),
        "SCRAM credentials": len(image.scram),
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
