"""StandardAuthorizer's rules: may this principal, from this host, do this to this resource?

A deny that applies outweighs every allow; the operation ALL stands for each; and on allowing, but
not on denying, some operations imply others (`IMPLIED_BY`).  If no ACL names the resource at all,
for whatever principal, `allow_if_no_acl` decides; otherwise what is not allowed is denied.
Source: Kafka's StandardAuthorizerData and Authorizer.authorizeByResourceType.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalog.security.acls import ALL, WILDCARD, Acl, Pattern, Permission, host_matches
from kafkalog.security.permissions import IMPLIED_BY, Kind, Operation
from kafkalog.security.principal import Principal

__all__ = ["EVERYONE", "Authorizer", "Reason"]

EVERYONE = "User:*"
"""The principal of ACLs for all."""
_ANY_NAME = "hardcode"
"""Kafka's name for a resource without an ACL of its own."""
_Place = tuple[int, int, str]
"""Kind, pattern, name."""


class Reason(NamedTuple):
    """A decision."""

    allowed: bool
    acl: Acl | None
    """The ACL that decided, if one did."""


class Authorizer:
    """All ACLs, indexed by name and by principal.

    Any thread may ask while one changes them: each question sees an ACL whole or not at all.
    """

    def __init__(
        self, super_users: Iterable[str] = (), allow_if_no_acl: bool = False,
        masks_allow: bool = True,
    ) -> None:  # fmt: skip
        """`super_users`: principals that may do everything, as `User:alice`.  `masks_allow`: False:
        a host such as 10.0.0.0/8 matches no address in an ACL that allows, as in Kafka 3.9."""
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl = allow_if_no_acl
        self._masks_allow = masks_allow
        # By place, then by principal.  Readers copy the dictionaries that they walk.
        self._by_place: dict[_Place, dict[str, tuple[Acl, ...]]] = {}
        self._by_principal: dict[tuple[int, str], dict[Acl, None]] = {}
        # How many places of prefixes have this length, by kind; and the lengths.
        self._counts: dict[int, dict[int, int]] = {}
        self._lengths: dict[int, tuple[int, ...]] = {}

    # ---- changes -------------------------------------------------------------------------------

    def add(self, acl: Acl) -> None:
        """Add an ACL; one that is there already stays once."""
        own = self._by_principal.setdefault((acl.kind, acl.principal), {})
        if acl in own:
            return
        own[acl] = None
        place = acl.kind, acl.pattern, acl.name
        known = self._by_place.get(place)
        if known is None:
            self._by_place[place] = {acl.principal: (acl,)}
            self._count(acl, 1)
        else:
            known[acl.principal] = (*known.get(acl.principal, ()), acl)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL, if it is there."""
        own = self._by_principal.get((acl.kind, acl.principal), {})
        if acl not in own:
            return
        del own[acl]
        if not own:
            del self._by_principal[acl.kind, acl.principal]
        place = acl.kind, acl.pattern, acl.name
        known = self._by_place[place]
        rest = tuple(one for one in known[acl.principal] if one != acl)
        if rest:
            known[acl.principal] = rest
        else:
            del known[acl.principal]
        if not known:
            del self._by_place[place]
            self._count(acl, -1)

    def _count(self, acl: Acl, more: int) -> None:
        if acl.pattern != Pattern.PREFIXED:
            return
        counts, length = self._counts.setdefault(acl.kind, {}), len(acl.name)
        counts[length] = counts.get(length, 0) + more
        if not counts[length]:
            del counts[length]
        self._lengths[acl.kind] = tuple(sorted(counts))

    # ---- questions -----------------------------------------------------------------------------

    def is_super(self, principal: Principal) -> bool:
        """True if it may do everything, whatever the ACLs say."""
        return str(principal) in self.super_users

    def decide(
        self, principal: Principal, host: str, operation: Operation, kind: Kind, name: str
    ) -> Reason:
        """The decision on one resource; `host`: an address as Java writes it."""
        if self.is_super(principal):
            return Reason(True, None)
        allowing = None
        named = False
        who = str(principal), EVERYONE
        for known in self._places(kind, name):
            named = True
            for one in who:
                for acl in known.get(one, ()):
                    if not (_applies(acl, operation) and self._at(acl, host)):
                        continue
                    if acl.permission != Permission.ALLOW:
                        return Reason(False, acl)
                    allowing = acl
        if allowing is not None:
            return Reason(True, allowing)
        return Reason(not named and self.allow_if_no_acl, None)

    def allows(
        self, principal: Principal, host: str, operation: Operation, kind: Kind, name: str
    ) -> bool:
        """The same, without the reason."""
        return self.decide(principal, host, operation, kind, name).allowed

    def _places(self, kind: int, name: str) -> Iterator[dict[str, tuple[Acl, ...]]]:
        """The ACLs at each place that this name matches, by principal."""
        places = [(kind, Pattern.LITERAL, name)]
        if name != WILDCARD:
            places.append((kind, Pattern.LITERAL, WILDCARD))
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                break
            places.append((kind, Pattern.PREFIXED, name[:length]))
        for place in places:
            known = self._by_place.get(place)
            if known is not None:
                yield known

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: Kind) -> bool:
        """True if it may do this to at least one resource of a kind.

        An ACL that allows does not count if one that denies covers all that it names.  Here no
        operation implies another, as in Kafka.
        """
        if self.allows(principal, host, operation, kind, _ANY_NAME):
            return True
        denied: set[tuple[int, str]] = set()
        allowed: list[tuple[int, str]] = []
        for acl in self._of(principal, host, kind):
            if acl.operation in (operation, ALL):
                if acl.permission == Permission.DENY:
                    denied.add((acl.pattern, acl.name))
                else:
                    allowed.append((acl.pattern, acl.name))
        if (Pattern.LITERAL, WILDCARD) in denied:
            return False
        lengths = sorted({len(name) for pattern, name in denied if pattern == Pattern.PREFIXED})
        for pattern, name in allowed:
            if (pattern, name) == (Pattern.LITERAL, WILDCARD):
                return True
            if pattern == Pattern.LITERAL and (pattern, name) in denied:
                continue
            if not any(
                (Pattern.PREFIXED, name[:length]) in denied
                for length in lengths
                if 0 < length <= len(name)
            ):
                return True
        return False

    def _of(self, principal: Principal, host: str, kind: int) -> Iterator[Acl]:
        """The ACLs of a kind that apply to a principal at a host."""
        yield from self.common(kind)
        yield from self.own(principal, host, kind)

    def _at(self, acl: Acl, host: str) -> bool:
        """True if an ACL applies to a host."""
        if not self._masks_allow and acl.permission == Permission.ALLOW and "/" in acl.host:
            return False
        return host_matches(acl.host, host)

    # ---- for tables of decisions ---------------------------------------------------------------

    def common(self, kind: int) -> Iterator[Acl]:
        """The ACLs of a kind that apply to every principal at every host."""
        return (acl for acl in list(self._by_principal.get((kind, EVERYONE), ()))
                if acl.host == WILDCARD)  # fmt: skip

    def own(self, principal: Principal, host: str, kind: int) -> Iterator[Acl]:
        """The others that apply to a principal at a host."""
        for acl in list(self._by_principal.get((kind, str(principal)), ())):
            if self._at(acl, host):
                yield acl
        for acl in list(self._by_principal.get((kind, EVERYONE), ())):
            if acl.host != WILDCARD and self._at(acl, host):
                yield acl

    def names(self, kind: int) -> Iterator[tuple[int, str]]:
        """The (pattern, name) of each resource of a kind that some ACL names."""
        return ((pattern, name) for one, pattern, name in list(self._by_place) if one == kind)


def _applies(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (ALL, operation):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())
