"""The network in virtual time: connections that keep their order, and links that fail.

TCP resends what a link loses, so a message is late, or its connection ends.  What was sent on a
connection that ended may still arrive, before or after what is sent on the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkalog.simulate.world import World

__all__ = ["Connection", "Network", "Place", "Speed"]

Call = Callable[[], None]


class Place:
    """A participant of the network: a node, ZooKeeper, a client."""

    def __init__(self, number: int, network: Network, up: bool = True) -> None:
        self.number, self.up, self.paused_until_ms = number, up, 0.0
        self.life = int(up)
        """Another number after each start and each end."""
        self.world = network.world
        self._network = network
        self._connections: dict[tuple[int, Any], Connection] = {}
        network.places[number] = self

    def serve(self, connection: Connection, request: Any, reply: Callable[[Any], None]) -> None:
        """A request arrived; the answer may be given later.  A client gets none."""

    def ask(
        self, place: int, request: Any, answered: Callable[[Any], None],
        failed: Callable[[], None], limit_ms: float, channel: Any = None,
    ) -> None:  # fmt: skip
        """Send a request to another place; the requests of a channel share one connection."""
        receiver = self._network.places.get(place)
        if receiver is None:
            self.world.later(0, failed, self)
            return
        found = self._connections.get((place, channel))
        if found is None or not found.open:
            found = Connection(self._network, self, receiver)
            self._connections[place, channel] = found
        found.ask(request, answered, failed, limit_ms)


class Speed(NamedTuple):
    """How fast and reliable a network is: drawn once per run."""

    fastest_ms: float = 0.2
    usual_ms: float = 1.0
    slow_share: float = 0.01
    slow_ms: float = 300.0
    break_share: float = 0.001
    """The share of messages that end their connection."""


class Network:
    """Links between places, each in one direction."""

    def __init__(self, world: World, speed: Speed) -> None:
        self.world = world
        self.speed = speed
        self.places: dict[int, Place] = {}
        self._cut: set[tuple[int, int]] = set()
        self._held: dict[tuple[int, int], list[Call]] = {}

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Hold all messages on these links until they are healed."""
        self._cut.update(links)

    def heal(self, links: Iterable[tuple[int, int]] | None = None) -> None:
        """Let what waits pass at once, in order; None: on all links."""
        healed = list(self._cut) if links is None else [one for one in links if one in self._cut]
        for link in sorted(healed):
            self._cut.discard(link)
            for call in self._held.pop(link, ()):
                self.world.later(0, call)

    def passes(self, link: tuple[int, int]) -> bool:
        """True if the link is not cut."""
        return link not in self._cut

    def delay_ms(self) -> float:
        """The delay of one message."""
        rng, speed = self.world.rng, self.speed
        if rng.random() < speed.slow_share:
            return speed.fastest_ms + rng.random() * speed.slow_ms
        return speed.fastest_ms + rng.expovariate(1 / speed.usual_ms)

    def carry(self, link: tuple[int, int], not_before_ms: float, call: Call) -> float:
        """Deliver one message; returns when it will arrive, if nothing is cut."""
        at_ms = max(not_before_ms, self.world.now_ms + self.delay_ms())
        self.world.at(at_ms, lambda: self._arrive(link, call))
        return at_ms

    def _arrive(self, link: tuple[int, int], call: Call) -> None:
        if link in self._cut:
            self._held.setdefault(link, []).append(call)
        else:
            call()


class Connection:
    """From one place to another, in their current lives.  It breaks, or ends by `close`."""

    def __init__(self, network: Network, sender: Place, receiver: Place) -> None:
        self._network, self._sender, self._receiver = network, sender, receiver
        self._lives = sender.life, receiver.life
        self._there_ms = self._back_ms = 0.0
        self._waiting: dict[int, tuple[Callable[[Any], None], Call]] = {}
        self._numbers = itertools.count()
        self.open = True
        self.pushed: Callable[[Any], None] = lambda _: None
        """Called at the sender with what the receiver pushes."""

    @property
    def sender(self) -> int:
        """The node that opened it."""
        return self._sender.number

    def ask(
        self, request: Any, answered: Callable[[Any], None], failed: Call, limit_ms: float
    ) -> None:
        """Send a request.  Either `answered` or `failed` is called, at the sender, if that lives
        on; a failed request may have been carried out, or be carried out later."""
        network, world = self._network, self._network.world
        number = next(self._numbers)
        self._waiting[number] = answered, failed
        link = self._sender.number, self._receiver.number
        self._there_ms = network.carry(link, self._there_ms, lambda: self._serve(number, request))
        world.later(limit_ms, lambda: self._late(number), self._sender)
        if world.rng.random() < network.speed.break_share:
            world.later(network.delay_ms(), self.close, self._sender)

    def _late(self, number: int) -> None:
        if number in self._waiting:
            self.close()

    def close(self) -> None:
        """The connection has ended: its requests have failed."""
        self.open = False
        waiting, self._waiting = self._waiting, {}
        for _, failed in waiting.values():
            failed()

    def _serve(self, number: int, request: Any) -> None:
        receiver, world = self._receiver, self._network.world
        if not self.open and world.rng.random() < 0.5:
            return  # it was still in the sender's buffer
        if receiver.life != self._lives[1] or not receiver.up:
            self._back(lambda: self.close() if self.open else None)
            return
        if receiver.paused_until_ms > world.now_ms:
            again_ms = receiver.paused_until_ms
            world.at(again_ms, lambda: self._serve(number, request), receiver)
            return
        receiver.serve(self, request, lambda answer: self._answer(number, answer))

    def push(self, message: Any) -> None:
        """Send something to the sender, in order with the answers."""
        if self._receiver.life == self._lives[1]:
            self._back(lambda: self.pushed(message) if self.open else None)

    def _answer(self, number: int, answer: Any) -> None:
        if self._receiver.life == self._lives[1]:
            self._back(lambda: self._take(number, answer))

    def _back(self, call: Call) -> None:
        link = self._receiver.number, self._sender.number
        self._back_ms = self._network.carry(link, self._back_ms, lambda: self._at_sender(call))

    def _at_sender(self, call: Call) -> None:
        if self._sender.life == self._lives[0]:
            self._network.world.later(0, call, self._sender)

    def _take(self, number: int, answer: Any) -> None:
        found = self._waiting.pop(number, None)
        if found is not None:
            found[0](answer)
