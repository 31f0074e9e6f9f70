"""Virtual time, and the network in it: connections that keep their order, and links that fail.

A run is a function of its seed: everything that happens is an event at a moment, and each choice is
drawn from the world's dice.  TCP resends what a link loses, so a message is late, or its connection
ends.  What was sent on a connection that ended may still arrive, before or after what is sent on
the next.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol
from zlib import crc32

__all__ = ["Connection", "Network", "Place", "Speed", "World"]

Call = Callable[[], None]


class World:
    """The clock, the dice, the events to come, and the trace."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        self.dice = random.Random(seed)
        self.now_ms = 0.0
        self.events = 0
        """How many have happened."""
        self.digest = 0
        """Digest of everything that was said: two runs of one seed have the same."""
        self.said: list[str] | None = [] if trace else None
        self._due: list[tuple[float, int, Place | None, int, Call]] = []
        self._numbers = itertools.count()

    def after(self, ms: float, call: Call, place: Place | None = None) -> None:
        """Like `at`, that much later than now."""
        self.at(self.now_ms + ms, call, place)

    def at(self, ms: float, call: Call, place: Place | None = None) -> None:
        """Call it then, after what is due at the same moment.  With `place`: if that is still in
        the same life then, and once it is not paused."""
        life = 0 if place is None else place.life
        heapq.heappush(self._due, (ms, next(self._numbers), place, life, call))

    def step(self) -> bool:
        """Run the next event; False: there is none."""
        while self._due:
            at_ms, _, place, life, call = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, at_ms)
            if place is not None:
                if place.life != life:
                    continue
                if place.paused_until_ms > self.now_ms:
                    self.at(place.paused_until_ms, call, place)
                    continue
            self.events += 1
            call()
            return True
        return False

    def say(self, *words: object) -> None:
        """Note what happened."""
        line = " ".join(map(str, words))
        self.digest = crc32(b"%d %s" % (int(self.now_ms * 1000), line.encode()), self.digest)
        if self.said is not None:
            self.said.append(f"{self.now_ms / 1000:9.3f} s  {line}")


class Place(Protocol):
    """A place reachable over the network: a node, ZooKeeper, a client."""

    number: int
    life: int
    """Another number after each start and each end."""
    up: bool
    paused_until_ms: float

    def serve(self, connection: Connection, request: Any, reply: Callable[[Any], None]) -> None:
        """A request arrived; the answer may be given later."""


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

    def add(self, place: Place) -> None:
        """Add a place."""
        self.places[place.number] = place

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Hold all messages on these links until they are healed."""
        self._cut.update(links)

    def heal(self, links: Iterable[tuple[int, int]] | None = None) -> None:
        """Let what waits pass at once, in order; None: on all links."""
        healed = list(self._cut) if links is None else [one for one in links if one in self._cut]
        for link in sorted(healed):
            self._cut.discard(link)
            for call in self._held.pop(link, ()):
                self.world.after(0, call)

    def passes(self, link: tuple[int, int]) -> bool:
        """True if the link is not cut."""
        return link not in self._cut

    def delay_ms(self) -> float:
        """The delay of one message."""
        dice, speed = self.world.dice, self.speed
        if dice.random() < speed.slow_share:
            return speed.fastest_ms + dice.random() * speed.slow_ms
        return speed.fastest_ms + dice.expovariate(1 / speed.usual_ms)

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
        world.after(limit_ms, lambda: self._late(number), self._sender)
        if world.dice.random() < network.speed.break_share:
            world.after(network.delay_ms(), self.close, self._sender)

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
        if not self.open and world.dice.random() < 0.5:
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
            self._network.world.after(0, call, self._sender)

    def _take(self, number: int, answer: Any) -> None:
        found = self._waiting.pop(number, None)
        if found is not None:
            found[0](answer)
