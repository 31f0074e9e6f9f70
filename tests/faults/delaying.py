"""Holds back what arrives at a host: `python -m tests.faults.delaying LEAST_MS MOST_MS`, run there.

Many kernels are built without their own way to do so (netem).  This needs only the firewall, which
puts packets into a queue; this program releases each after a random time, so packets also overtake
each other.  When it ends, the packets that it holds are lost, and later ones arrive at once.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

QUEUE = 0
HELD = 10_000
"""Most packets held; later ones are lost."""
READY = "ready"
# From linux/netlink.h and linux/netfilter/nfnetlink_queue.h.
NETLINK_NETFILTER, SOL_NETLINK, NETLINK_NO_ENOBUFS = 12, 270, 5
ERROR, PACKET, VERDICT, CONFIG = 2, 3 << 8, 3 << 8 | 1, 3 << 8 | 2
REQUEST, ACKNOWLEDGE = 1, 4
COMMAND, PARAMETERS, MOST_HELD = 1, 2, 3
BIND, COPY_META = 1, 1
PACKET_HEADER, VERDICT_HEADER = 1, 2
ACCEPT = 1


def message(kind: int, attribute: int, value: bytes, flags: int = REQUEST) -> bytes:
    """A message with one attribute, for our queue."""
    padded = value + bytes(-len(value) % 4)
    body = struct.pack("=BB", socket.AF_UNSPEC, 0) + struct.pack(">H", QUEUE)
    body += struct.pack("=HH", 4 + len(value), attribute) + padded
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each message."""
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def packets(data: bytes) -> Iterator[int]:
    """The numbers of the packets that arrived."""
    for kind, body in messages(data):
        at = 4
        while kind == PACKET and at + 4 <= len(body):
            length, attribute = struct.unpack_from("=HH", body, at)
            if attribute == PACKET_HEADER:
                yield struct.unpack_from(">I", body, at + 4)[0]
                break
            at += (length + 3) & ~3


def queue() -> socket.socket:
    """The socket on which the firewall's packets arrive as messages.  Raises: OSError."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    made.bind((0, 0))
    made.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
    for attribute, value in (
        (COMMAND, struct.pack(">BBH", BIND, 0, 0)),
        (PARAMETERS, struct.pack(">IB", 0, COPY_META)),
        (MOST_HELD, struct.pack(">I", HELD)),
    ):
        made.send(message(CONFIG, attribute, value, REQUEST | ACKNOWLEDGE))
        answers = [struct.unpack_from("=i", body)[0]
                   for kind, body in messages(made.recv(1 << 16)) if kind == ERROR]  # fmt: skip
        if any(answers):
            raise OSError(-answers[0], "cannot get a queue of packets")
    return made


def main(least_ms: float, most_ms: float) -> None:
    """Run until killed."""
    held: list[tuple[float, int]] = []
    with queue() as arrivals:
        print(READY, flush=True)
        while True:
            wait = max(0, held[0][0] - time.monotonic()) if held else None
            if select.select([arrivals], [], [], wait)[0]:
                now = time.monotonic()
                for number in packets(arrivals.recv(1 << 20)):
                    late = random.uniform(least_ms, most_ms) / 1000
                    heapq.heappush(held, (now + late, number))
            while held and held[0][0] <= time.monotonic():
                verdict = struct.pack(">II", ACCEPT, heapq.heappop(held)[1])
                arrivals.send(message(VERDICT, VERDICT_HEADER, verdict))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
