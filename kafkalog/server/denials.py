"""The log of denied operations: principal, host, operation and resource."""

import logging
import threading
import time
from typing import TYPE_CHECKING

from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal

if TYPE_CHECKING:
    from kafkalog.security.acls import Acl

__all__ = ["LINES_MAX", "Denials"]

_logger = logging.getLogger(__name__)

LINES_MAX = 10
"""Lines in one second; the rest are counted."""


class Denials:
    """Logs what was denied, at most LINES_MAX lines a second.  Safe to use from many threads."""

    def __init__(self) -> None:
        """Nothing was denied yet."""
        self._lock = threading.Lock()  # guards what follows
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def tell(
        self, principal: Principal, host: str, operation: Operation, resource: tuple[Kind, str],
        acl: "Acl | None", lost: int = 0,
    ) -> bool:  # fmt: skip
        """One operation on a resource was denied; `acl`: by this, None: no ACL allows it; `lost`:
        before it, so many others of which nothing is known.  False: it was only counted."""
        left_out = self._take(lost)
        if left_out is None:
            return False
        if left_out:
            _logger.warning("%d more operations were denied", left_out)
        kind, name = resource
        why = f"an ACL denies it: {acl.principal!r} at {acl.host!r}" if acl else "no ACL allows it"
        _logger.warning(
            "denied: %r at %r, operation %s on %s %r: %s", str(principal), host, operation.name,
            kind.name, name, why,
        )  # fmt: skip
        return True

    def _take(self, lost: int) -> int | None:
        """How many were left out before; None: this one is left out, too."""
        now = int(time.monotonic())
        with self._lock:
            self._left_out += lost
            if now != self._second:
                self._second, self._lines = now, 0
            if self._lines >= LINES_MAX:
                self._left_out += 1
                return None
            self._lines += 1
            left_out, self._left_out = self._left_out, 0
            return left_out
