"""The rights of principals that C checks for Produce and Fetch, and their use of both."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation

if TYPE_CHECKING:
    from kafkalog.server.rules import Rules

__all__ = ["RIGHTS", "Denied", "Rights", "Usage"]

RIGHTS: int = lib.KL_MAY_WRITE | lib.KL_MAY_READ | lib.KL_MAY_REPLICATE
"""All that Produce and Fetch ask for."""


class Usage(NamedTuple):
    """The totals of Produce and Fetch of a principal since the start."""

    produce_requests: int
    produce_bytes: int
    """Bytes of the requests."""
    fetch_requests: int
    fetch_bytes: int
    """Bytes of records."""
    denied: int
    """Partitions."""


class Denied(NamedTuple):
    """A Produce or Fetch that C denied."""

    principal: int
    tenure: int
    """The number's: 0 for the first client that it stands for, and so on."""
    operation: Operation
    kind: Kind
    name: str
    """The resource; a long name is cut."""
    lost: int
    """Further denials before it that are not reported."""


_WHICH = {
    (lib.KL_MAY_WRITE, lib.KL_RULES_TOPICS): (Operation.WRITE, Kind.TOPIC),
    (lib.KL_MAY_WRITE, lib.KL_RULES_IDS): (Operation.WRITE, Kind.TRANSACTIONAL_ID),
    (lib.KL_MAY_READ, lib.KL_RULES_TOPICS): (Operation.READ, Kind.TOPIC),
    (lib.KL_MAY_REPLICATE, lib.KL_RULES_TOPICS): (Operation.CLUSTER_ACTION, Kind.CLUSTER),
}


class Rights:
    """A part of Reactor."""

    _c: Any

    def set_permit(self, principal: int, rights: int, throttle_ms: int = 0) -> None:
        """Set the rights (KL_MAY_*) of a principal on all topics, and the throttle time that its
        answers report, from the next Produce or Fetch on.

        Raises: ArgumentError, NoMemory.
        """
        permit = ffi.new("kl_permit *", (rights, throttle_ms))
        check(lib.kl_server_set_permit(self._c, principal, permit))

    def unheld(self, first: int, end: int) -> list[int]:
        """The principals from `first` up to `end` that no connection has, nor will have by a
        `set_principal`."""
        out = ffi.new("int32_t[]", max(end - first, 1))
        return list(out[0 : lib.kl_server_unheld(self._c, first, end, out)])

    def next_tenure(self, principal: int) -> int:
        """Let a principal that no connection has stand for another client; its tenure in reports
        from now on, 1 or more."""
        return int(lib.kl_server_next_tenure(self._c, principal))

    def outdate_rules(self, common: Sequence["Rules"]) -> None:
        """Set the rules that apply to all principals, by KL_RULES_*; those of each are outdated,
        and its next Produce or Fetch is passed to Python.

        Raises: NoMemory: they are outdated nevertheless.
        """
        alive: list[Any] = []
        rules = ffi.new("kl_rules[]", len(common))
        for place, one in zip(rules, common, strict=True):
            one.fill(place, alive)
        check(lib.kl_server_outdate_rules(self._c, rules))

    def set_rules(
        self, principal: int, rights: int, own: Sequence["Rules"], *, unnamed: bool
    ) -> None:
        """Set a principal's rights: KL_MAY_* on all resources, and its own rules by KL_RULES_*.

        `unnamed`: what no ACL names is allowed.

        Raises: ArgumentError, NoMemory.
        """
        alive: list[Any] = []
        judgement = ffi.new("kl_judgement *", {"rights": rights, "unnamed": int(unnamed)})
        for place, one in zip(judgement.own, own, strict=True):
            one.fill(place, alive)
        check(lib.kl_server_set_rules(self._c, principal, judgement))

    def usage(self, principal: int) -> Usage:
        """The totals of Produce and Fetch of a principal.

        Raises: NotFound: set_permit was never called for it.
        """
        out = ffi.new("kl_usage *")
        check(lib.kl_server_get_usage(self._c, principal, out))
        return Usage(**{name: int(getattr(out, name)) for name in Usage._fields})

    def denial(self, timeout_ms: int) -> Denied | None:
        """The next Produce or Fetch that C denied; None if none was in this time.

        Raises: Closed (the server was stopped).
        """
        out = ffi.new("kl_denial *")
        status = lib.kl_server_take_denial(self._c, timeout_ms, out)
        if status == lib.KL_E_TIMEOUT:
            return None
        check(status)
        operation, kind = _WHICH[out.right, out.kind]
        name = bytes(out.name[0 : out.name_bytes]).decode("utf-8", "replace")
        name = CLUSTER_NAME if kind is Kind.CLUSTER else name
        return Denied(out.principal, out.tenure, operation, kind, name, out.lost)
