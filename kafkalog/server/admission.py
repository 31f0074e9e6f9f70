"""May this principal do this, and how long must it wait?  Asked for every request.

Python asks here for the requests that it answers.  C answers Produce and Fetch by the same ACLs,
which it gets from here for each principal (`server/rules.py`, `_native/plane/admit.h`).
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._native import lib
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.config.protection import refuse_protection
from kafkalog.config.server import ServerConfig, is_dynamic
from kafkalog.errors import Closed, Timeout
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER
from kafkalog.security.authorizer import Authorizer
from kafkalog.security.permissions import CLUSTER_NAME, SUPPORTED, Kind, Operation
from kafkalog.security.principal import ANONYMOUS as ANONYMOUS_PRINCIPAL
from kafkalog.security.principal import Principal
from kafkalog.server.denials import UNKNOWN, log_denial
from kafkalog.server.network.listeners import INSIDE
from kafkalog.server.network.reactor import ANONYMOUS, RIGHTS
from kafkalog.server.network.rights import Denied
from kafkalog.server.rules import NOTHING, Rules, rules_of

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.source import Described
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.request import Peer, Request

__all__ = ["Admission", "authorizer_of", "check_stored_settings", "java_host", "super_users"]

_logger = limited(__name__)

_KINDS_IN_C = (Kind.TOPIC, Kind.TRANSACTIONAL_ID)
"""In the order of KL_RULES_*."""
NUMBERS_KEPT = 1024
"""From this number on, those that no connection has any more are looked for."""
FIRST = lib.KL_PROCESS + 1
"""The first number for a client."""
LOOK_MS, PAUSE_S = 60_000, 0.05
"""How long the thread that logs denials waits for one, and after one: C counts what it misses."""


class _Holder(NamedTuple):
    principal: Principal
    host: str
    """As Peer's."""


class Admission:
    """The rights of principals, and the number of each.  Safe to use from many threads.

    A number stands for a principal at a host, and belongs to the connections that have it.
    """

    def __init__(self, reactor: "Reactor", authorizer: Authorizer | None = None) -> None:
        """`reactor`: gets the rights that Produce and Fetch ask for; `authorizer`: decides what
        is allowed, None: everything is."""
        self._reactor = reactor
        self._authorizer = authorizer
        self._lock = threading.RLock()  # guards what follows, changes of ACLs, and those in C
        anonymous = _Holder(ANONYMOUS_PRINCIPAL, "")
        self._holders = {ANONYMOUS: anonymous, lib.KL_PROCESS: anonymous}
        self._numbers: dict[_Holder, int] = {}
        self._tenures: dict[int, int] = {}  # of the numbers that were taken back
        self._lent: Counter[int] = Counter()
        self._free: deque[int] = deque()  # the ones that were taken back last come last
        self._reap_at = NUMBERS_KEPT
        self._current: set[int] = set()  # numbers whose rules C has
        self._common: bool = False  # C has the rules that apply to all
        if authorizer is not None:
            self._reactor.set_rules(ANONYMOUS, 0, [NOTHING, NOTHING], unnamed=False)
            self._outdate()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- principals ----------------------------------------------------------------------------

    def principal(self, number: int) -> Principal:
        """The principal of a number."""
        return self._holders[number].principal

    def reported(self, number: int, tenure: int) -> tuple[Principal, str] | None:
        """The principal and the host of a report that may have waited; None: the number was taken
        back since, and may stand for another one."""
        with self._lock:
            if self._tenures.get(number, 0) != tenure:
                return None
            return self._holders[number]

    def identify(self, request: "Request", principal: Principal, expires_ms: int = -1) -> None:
        """Let the connection of a request have a principal, from the answer on: Request.identify.

        Raises: Timeout: too many principals are connected; the connection is to be closed.
        """
        with self._lock:  # until the connection holds the number, nobody takes it back
            request.identify(self.number_of(principal, request.peer.host), expires_ms)

    def number_of(self, principal: Principal, host: str) -> int:
        """The number of a principal at a host (Peer.host).  Once there are many, one that no
        connection holds is taken back.

        Raises: Timeout: all are held.
        """
        with self._lock:
            holder = _Holder(principal, host)
            number = self._numbers.get(holder)
            if number is None:
                number = self._new_number()
                self._numbers[holder] = number
                self._holders[number] = holder
                if self._authorizer is None:
                    self._reactor.set_permit(number, RIGHTS)
                else:
                    self._renew(number)
            return number

    def lend(self, principal: Principal, host: str) -> int:
        """The number of a principal whose request came over the connection of a node; until
        `give_back` it is not taken back.

        Raises: as number_of.
        """
        with self._lock:
            number = self.number_of(principal, host)
            self._lent[number] += 1
            return number

    def give_back(self, number: int) -> None:
        """The request of `lend` has ended."""
        with self._lock:
            self._lent[number] -= 1
            if self._lent[number] <= 0:
                del self._lent[number]

    def _new_number(self) -> int:
        full = len(self._holders) >= lib.KL_PRINCIPALS_MAX
        if not self._free and (full or len(self._holders) >= self._reap_at):
            self._reap()
            self._reap_at = max(self._reap_at, 2 * (len(self._holders) - FIRST - len(self._free)))
        if self._free:
            return self._free.popleft()
        number = len(self._holders)
        if number >= lib.KL_PRINCIPALS_MAX:
            raise Timeout(
                f"{number} principals, by their hosts, are connected: no more are accepted"
            )
        return number

    def _reap(self) -> None:
        """Take back the numbers that no connection has any more."""
        for number in self._reactor.unheld(FIRST, len(self._holders)):
            holder = self._holders[number]
            if self._numbers.get(holder) == number and number not in self._lent:
                del self._numbers[holder]
                self._current.discard(number)
                self._reactor.set_permit(number, 0)
                self._tenures[number] = self._reactor.next_tenure(number)
                self._free.append(number)

    # ---- rights --------------------------------------------------------------------------------

    @property
    def authorizes(self) -> bool:
        """True if there is an authorizer."""
        return self._authorizer is not None

    def guards(self, peer: "Peer") -> bool:
        """True if the caller's requests are checked; this process and super users may do
        everything."""
        if self._authorizer is None or peer.listener == INSIDE:
            return False
        if peer.principal < 0:  # not authenticated yet
            return True
        return not self._authorizer.is_super(self.principal(peer.principal))

    def allows(
        self, peer: "Peer", operation: Operation, kind: Kind, name: str, *, quiet: bool = False
    ) -> bool:
        """True if the caller may do this to a resource, which need not exist; never before it has
        authenticated.

        `quiet`: a denial is not logged, as the caller did not ask for this resource.
        """
        if peer.principal < 0:  # not authenticated
            return False
        authorizer = self._authorizer
        if authorizer is None or peer.listener == INSIDE:
            return True
        principal, host = self.principal(peer.principal), java_host(peer.host)
        found = authorizer.decide(principal, host, operation, kind, name)
        if not found.allowed and not quiet:
            log_denial(principal, host, operation, (kind, name), found.acl)
        return found.allowed

    def allowed(
        self, peer: "Peer", operation: Operation, kind: Kind, names: Iterable[str], *,
        quiet: bool = False,
    ) -> set[str]:  # fmt: skip
        """Those of the names to which the caller may do this."""
        return {name for name in names if self.allows(peer, operation, kind, name, quiet=quiet)}

    def allows_any(self, peer: "Peer", operation: Operation, kind: Kind) -> bool:
        """True if the caller may do this to at least one resource of a type, whether such a one
        exists or not: Kafka's authorizeByResourceType."""
        if peer.principal < 0:
            return False
        if self._authorizer is None or peer.listener == INSIDE:
            return True
        principal = self.principal(peer.principal)
        return self._authorizer.allows_any(principal, java_host(peer.host), operation, kind)

    def operations(self, peer: "Peer", kind: Kind, name: str) -> int:
        """The operations that the caller may do to a resource, one bit each, as responses hold
        them; of those that its type has."""
        return sum(
            1 << operation for operation in SUPPORTED[kind]
            if self.allows(peer, operation, kind, name, quiet=True)
        )  # fmt: skip

    # ---- denials by C --------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Log what C denies, until the reactor stops.  `name`: the thread's name begins so."""
        if self._authorizer is not None:
            self._thread = threading.Thread(
                target=self._log_denied, name=f"{name} denials", daemon=True
            )
            self._thread.start()

    def join(self) -> None:
        """Wait for the thread, once the reactor has stopped."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _log_denied(self) -> None:
        while True:
            try:
                found = self._reactor.denial(LOOK_MS)
            except Closed:
                return
            if found is not None:
                self._tell(found)
                self._ended.wait(PAUSE_S)

    def _tell(self, found: Denied) -> None:
        if self._authorizer is None:
            return
        resource = found.kind, found.name
        holder = self.reported(found.principal, found.tenure)
        if holder is None:
            log_denial(None, UNKNOWN, found.operation, resource, None, found.lost)
            return
        principal, host = holder[0], java_host(holder[1])
        decision = self._authorizer.decide(principal, host, found.operation, found.kind, found.name)
        acl = None if decision.allowed else decision.acl  # the ACLs may have changed since
        log_denial(principal, host, found.operation, resource, acl, found.lost)

    # ---- ACLs ----------------------------------------------------------------------------------

    def follow(self, metadata: "Described") -> None:
        """Obey the ACLs of the metadata, now and from each change on."""
        metadata.listen(self._changed)
        with self._lock:
            if self._authorizer is not None:
                for acl in metadata.image.acls.values():
                    self._authorizer.add(acl)
                self._outdate()
            else:
                self._warn_of(metadata.image)

    @staticmethod
    def _warn_of(image: "MetadataImage") -> None:
        """Without an authorizer."""
        if image.acls:
            _logger.warning(
                "the metadata hold %d ACLs, and nobody enforces them, as authorizer.class.name "
                "is not set: EVERY CLIENT MAY DO EVERYTHING", len(image.acls),
            )  # fmt: skip

    def _changed(self, change: "Change") -> None:
        if change.old.acls is change.new.acls:
            return
        if self._authorizer is None:
            if not change.old.acls:
                self._warn_of(change.new)
            return
        old, new = change.old.acls.items(), change.new.acls.items()
        with self._lock:
            if gone := {acl for _, acl in old - new} - {acl for _, acl in new - old}:
                for acl in gone.difference(change.new.acls.values()):
                    self._authorizer.remove(acl)
            for _, acl in new - old:
                self._authorizer.add(acl)
            self._outdate()

    def _outdate(self) -> None:
        """Locked.  C passes the next request of each principal here."""
        self._current.clear()
        self._common = False
        self._reactor.outdate_rules([NOTHING, NOTHING])

    def renew(self, request: "Request") -> None:
        """Give C the rules of the caller of a Produce or Fetch that was passed on.

        Raises: Timeout, as number_of.
        """
        number = request.peer.principal
        if self._authorizer is None or number == lib.KL_PROCESS:
            return
        if number == ANONYMOUS:  # of any host: from now on, of this one
            self.identify(request, ANONYMOUS_PRINCIPAL)
            return
        with self._lock:
            if number not in self._current:
                self._renew(number)

    def _renew(self, number: int) -> None:
        """Locked."""
        authorizer = self._authorizer
        assert authorizer is not None
        if not self._common:
            self._reactor.outdate_rules([self._common_rules(authorizer, k) for k in _KINDS_IN_C])
            self._current.clear()
            self._common = True
        principal, host = self._holders[number]
        host = java_host(host)
        cluster = (principal, host, Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME)
        rights = lib.KL_MAY_REPLICATE if authorizer.allows(*cluster) else 0
        own = [rules_of(authorizer.own(principal, host, kind)) for kind in _KINDS_IN_C]
        self._reactor.set_rules(
            number, RIGHTS if authorizer.is_super(principal) else rights, own,
            unnamed=authorizer.allow_if_no_acl,
        )  # fmt: skip
        self._current.add(number)

    @staticmethod
    def _common_rules(authorizer: Authorizer, kind: Kind) -> Rules:
        named = authorizer.names(kind) if authorizer.allow_if_no_acl else ()
        return rules_of(authorizer.common(kind), named)


def super_users(config: ServerConfig) -> list[str]:
    """The principals that may do everything, as `User:alice`."""
    return [text.strip() for text in config.super_users.split(";") if text.strip()]


def authorizer_of(config: ServerConfig) -> Authorizer | None:
    """The authorizer that the settings name, without ACLs."""
    supers = super_users(config)
    if not config.authorizer_class_name:
        if supers or config.allow_everyone_if_no_acl_found:
            _logger.warning("super.users and allow.everyone.if.no.acl.found have no effect without "
                            "authorizer.class.name: EVERY CLIENT MAY DO EVERYTHING")  # fmt: skip
        return None
    masks_allow = config.authorizer_class_name != ACL_AUTHORIZER
    return Authorizer(supers, config.allow_everyone_if_no_acl_found, masks_allow)


@lru_cache(maxsize=4096)
def java_host(host: str) -> str:
    """Peer.host as Java writes an address, which is what ACLs name."""
    bare = host.removeprefix("/")
    address, percent, scope = bare.partition("%")
    try:
        found = ip_address(address)
    except ValueError:
        return bare
    if not isinstance(found, IPv6Address):
        return bare
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in found.exploded.split(":")) + percent + scope


def check_stored_settings(image: "MetadataImage") -> None:
    """Refuse brokers' settings in the metadata that restrict access and take no effect there.

    Raises: InvalidSetting.
    """
    for resource in ("", str(image.node_id)):
        for name, value in image.config(BROKER, resource).items():
            where = f"the metadata, broker {resource or 'default'}: "
            if not is_dynamic(name):
                refuse_protection(name, value, where, running=True)
