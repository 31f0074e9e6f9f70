"""Kafka's operations and resource types: what a request may need permission for.

Source: Kafka's AclOperation, ResourceType and AclEntry.supportedOperations.
"""

from enum import IntEnum

__all__ = ["CLUSTER_NAME", "IMPLIED_BY", "SUPPORTED", "Kind", "Operation", "everything"]

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Kind(IntEnum):
    """The type of a resource; Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


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
    Kind.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    Kind.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}  # fmt: skip
"""The operations that each type has."""


IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An operation is allowed, though not denied, with any of these."""


def everything(kind: Kind) -> int:
    """All operations of a type, one bit each, as responses hold them."""
    return sum(1 << operation for operation in SUPPORTED[kind])
