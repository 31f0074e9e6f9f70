"""Kafka's operations and resource types: what a request may need permission for.

`admission` compares them with the rights of a principal.  So far everyone has all of them, and a
client that asks for its permissions gets all.
Source: Kafka's AclOperation, ResourceType and AclEntry.supportedOperations.
"""

from enum import IntEnum

__all__ = ["SUPPORTED", "Kind", "Operation", "everything"]


class Operation(IntEnum):
    """Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Kind(IntEnum):
    """The type of a resource; Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED: dict[Kind, frozenset[Operation]] = {
    Kind.TOPIC: frozenset(
        {Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
         Operation.DESCRIBE, *_CONFIGS}
    ),
    Kind.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS}),
    Kind.CLUSTER: frozenset(
        {Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
         Operation.IDEMPOTENT_WRITE, *_CONFIGS}
    ),
    Kind.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
}  # fmt: skip
"""The operations that each type has."""


def everything(kind: Kind) -> int:
    """All operations of a type, one bit each, as responses hold them."""
    return sum(1 << operation for operation in SUPPORTED[kind])
