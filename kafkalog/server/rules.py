"""ACLs as C takes them: what they allow and deny to a principal, by the name of a resource.

Source: kl_rules.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog._native import ffi, lib
from kafkalog.security.acls import ALL, WILDCARD, Acl, Pattern, Permission
from kafkalog.security.permissions import Operation

__all__ = ["NOTHING", "Rules", "rules_of"]

_ALLOWED = {
    Operation.WRITE: lib.KL_RULE_WRITE,
    Operation.READ: lib.KL_RULE_READ,
    ALL: lib.KL_RULE_WRITE | lib.KL_RULE_READ,
}
_DENIED = {
    Operation.WRITE: lib.KL_RULE_NO_WRITE,
    Operation.READ: lib.KL_RULE_NO_READ,
    ALL: lib.KL_RULE_NO_WRITE | lib.KL_RULE_NO_READ,
}


class Rules(NamedTuple):
    """The rules about the resources of one type."""

    everywhere: int
    """KL_RULE_* for all names."""
    bits: Mapping[bytes, tuple[int, int]]
    """KL_RULE_* by name: for it alone, and for those that begin with it."""

    def fill(self, out: Any, alive: list[Any]) -> None:
        """Fill a kl_rules, whose memory is kept in `alive`."""
        names = sorted(self.bits)
        memory = (
            ffi.from_buffer("uint8_t[]", b"".join(names)),
            ffi.new("int32_t[]", list(map(len, names))),
            ffi.new("uint8_t[]", [bits for name in names for bits in self.bits[name]]),
        )
        alive += memory
        out.names, out.name_bytes, out.bits = memory
        out.count, out.everywhere = len(names), self.everywhere


NOTHING = Rules(0, {})


def rules_of(acls: Iterable[Acl], named: Iterable[tuple[int, str]] = ()) -> Rules:
    """The rules of ACLs that apply to one principal, of one type of resource.

    `named`: pattern and name of the resources that some ACL names.
    """
    found: dict[tuple[int, str], int] = dict.fromkeys(named, lib.KL_RULE_NAMED)
    for acl in acls:
        meaning = _ALLOWED if acl.permission == Permission.ALLOW else _DENIED
        place = acl.pattern, acl.name
        found[place] = found.get(place, 0) | meaning.get(acl.operation, 0)
    everywhere = found.pop((Pattern.LITERAL, WILDCARD), 0)
    bits: dict[bytes, tuple[int, int]] = {}
    for (pattern, name), some in found.items():
        if some and pattern in (Pattern.LITERAL, Pattern.PREFIXED):
            data = name.encode("utf-8", "surrogatepass")
            literal, prefixed = bits.get(data, (0, 0))
            if pattern == Pattern.LITERAL:
                bits[data] = literal | some, prefixed
            else:
                bits[data] = literal, prefixed | some
    return Rules(everywhere, bits)
