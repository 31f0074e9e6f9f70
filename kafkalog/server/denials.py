"""The log of denied operations: principal, host, operation and resource."""

from typing import TYPE_CHECKING

from kafkalog.logs.limit import left_out, limited
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal

if TYPE_CHECKING:
    from kafkalog.security.acls import Acl

__all__ = ["UNKNOWN", "log_denial"]

_logger = limited(__name__)
UNKNOWN = "unknown"
"""In place of a principal whose number may stand for another one by now."""
_DENIED = "denied: %r at %r, operation %s on %s %r: %s"


def log_denial(
    principal: Principal | None, host: str, operation: Operation, resource: tuple[Kind, str],
    acl: "Acl | None", lost: int = 0,
) -> None:  # fmt: skip
    """One operation on a resource was denied; `acl`: by this, None: no ACL allows it; `lost`:
    before it, so many others of which nothing is known.  `principal` None: it is not known."""
    left_out(_logger, _DENIED, lost)
    kind, name = resource
    if principal is None:
        why = "its connection has ended"
    else:
        why = f"an ACL denies it: {acl.principal!r} at {acl.host!r}" if acl else "no ACL allows it"
    caller = UNKNOWN if principal is None else str(principal)
    _logger.warning(_DENIED, caller, host, operation.name, kind.name, name, why)
