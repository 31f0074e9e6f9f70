"""Where the nodes of the quorum are: by the voters' records, by the settings, and by answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkalog.client.link.transport import Address, parse_servers
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters, find, voters_of

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig

__all__ = ["Endpoint", "Places", "controllers_of", "static_voters"]

Endpoint = tuple[str, str, int]
"""A listener's name, host and port."""
LEARNED_MAX = 1_000
"""The most nodes whose addresses are remembered from answers; a quorum has fewer."""
FIRST_BOOTSTRAP = -2
"""The number of the first bootstrap server, whose node is not known; the next one has -3, as in
Kafka."""


def controllers_of(config: ServerConfig) -> tuple[tuple[Address, ...], dict[int, Address]]:
    """The controllers' addresses: all, and by node as far as the settings name nodes.

    Raises: ArgumentError for one that is no address.
    """
    voters: dict[int, Address] = {}
    for word in config.controller_quorum_voters:
        number, _, place = word.partition("@")
        (voters[int(number)],) = parse_servers(place)
    named = parse_servers(",".join(config.controller_quorum_bootstrap_servers)) if (
        config.controller_quorum_bootstrap_servers) else []  # fmt: skip
    return tuple(dict.fromkeys([*named, *voters.values()])), voters


def static_voters(places: dict[int, Address], listener: str) -> Voters:
    """The voters of controller.quorum.voters (kraft.version 0)."""
    return voters_of(
        Voter(ReplicaKey(node), ((listener, where.host, where.port),), (0, 0))
        for node, where in places.items()
    )


class Places:
    """Where to reach nodes.  One thread learns, any may ask."""

    def __init__(
        self, listener: str, bootstrap: Sequence[Address], static: dict[int, Address],
        own: Iterable[Endpoint] = (),
    ) -> None:  # fmt: skip
        """`listener`: the controllers'; `bootstrap`: servers to ask first, without those of `own`,
        which are this node's; `static`: those of the settings by node."""
        self._listener, self._static = listener, static
        mine = {Address(host, port) for _, host, port in own}
        servers = [one for one in bootstrap if one not in mine and one not in static.values()]
        self._bootstrap = {FIRST_BOOTSTRAP - at: one for at, one in enumerate(servers)}
        self._learned: dict[int, Address] = {}

    @property
    def bootstrap(self) -> tuple[int, ...]:
        """The numbers of the bootstrap servers."""
        return tuple(self._bootstrap)

    def of(self, node: int, voters: Voters) -> Address | None:
        """Where a node is; None: not known."""
        if node in self._bootstrap:
            return self._bootstrap[node]
        one = find(voters, node)
        if one is not None and (found := self.among(one.endpoints)) is not None:
            return found
        return self._learned.get(node) or self._static.get(node)

    def among(self, endpoints: Iterable[Endpoint], listener: str = "") -> Address | None:
        """The address of a listener, by default the controllers'; None: it is not among them."""
        wanted = listener or self._listener
        for name, host, port in endpoints:
            if name == wanted:
                return Address(host, port)
        return None

    def learn(self, node: int, where: Address | None) -> None:
        """A request or an answer says where a node is."""
        if node < 0 or where is None or not where.host or not 0 < where.port < 65536:
            return
        self._learned[node] = where
        while len(self._learned) > LEARNED_MAX:
            del self._learned[next(iter(self._learned))]

    def learn_from_answer(self, body: Any) -> None:
        """Take over the endpoints in a response."""
        for one in getattr(body, "node_endpoints", None) or ():
            self.learn(one.node_id, Address(one.host, one.port))
