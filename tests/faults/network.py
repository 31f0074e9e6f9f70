"""Separate hosts on this machine: network namespaces on one bridge, with no way out.

What a host must not hear is dropped where it arrives, so each direction can be cut separately:
connections stay and nothing arrives, as with a cut cable.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable

from tests.faults import delaying

NETWORK = "198.18"
"""From the addresses reserved for measuring networks, one third byte for each network of ours."""

RANDOM = "-m statistic --mode random --probability"


def why_not() -> str | None:
    """Why this machine cannot have separate hosts."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in (
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("iptables", "iptables"),
        ("nsenter", "util-linux"),
    ):
        if shutil.which(program) is None:
            return f"{program} is not installed (package {package})"
    try:
        with Network() as network:
            one, other = network.host("one"), network.host("other")
            one.hears([f"{NETWORK}.255.255"])
            dial = f"import socket; socket.create_connection(({other.address!r}, 9), 5)"
            tried = subprocess.run(
                [*one.within, sys.executable, "-c", dial], capture_output=True, text=True
            )
            if "ConnectionRefusedError" not in tried.stderr:  # nothing listens, but it is reachable
                return f"hosts on a bridge do not reach each other: {tried.stderr[-200:]}"
    except subprocess.CalledProcessError as refused:
        return f"{' '.join(refused.cmd)}: {refused.stderr.strip()}"
    return None


@functools.cache
def why_not_late() -> str | None:
    """Why hosts here can neither delay packets nor refuse a part of them."""
    try:
        with Network() as network:
            network.host("one").hears(resets=0.01, late_ms=(1, 2))
    except subprocess.CalledProcessError as refused:
        return f"{' '.join(refused.cmd)}: {refused.stderr.strip()}"
    return None


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


class Host:
    """A namespace with one address."""

    def __init__(self, name: str, space: str, address: str) -> None:
        self.name = name
        self.address = address
        self._delaying: subprocess.Popen[bytes] | None = None
        self.within = ("nsenter", f"--net=/run/netns/{space}")
        """The beginning of a command that runs there.  (`ip netns exec` would keep mounts
        busy.)"""

    def hears(
        self, deaf_to: Iterable[str] = (), *, loss: float = 0, resets: float = 0,
        late_ms: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        """Set the host's faults from now on: it hears nothing from the addresses in `deaf_to`,
        loses the part `loss` of the rest, refuses the part `resets` as if there were no such
        connection, and gets packets `late_ms` later (least and most)."""
        rules = [f"-A INPUT -s {address} -j DROP" for address in sorted(deaf_to)]
        if loss:
            rules.append(f"-A INPUT -i eth0 {RANDOM} {loss} -j DROP")
        if resets:
            reject = "-j REJECT --reject-with tcp-reset"
            rules.append(f"-A INPUT -i eth0 -p tcp {RANDOM} {resets} {reject}")
        if late_ms is not None:
            self._hold_back(late_ms)
            rules.append(f"-A INPUT -i eth0 -j NFQUEUE --queue-num {delaying.QUEUE} --queue-bypass")
        text = "\n".join(["*filter", ":INPUT ACCEPT [0:0]", *rules, "COMMIT", ""])
        _run(*self.within, "iptables-restore", "-w", text=text)
        if late_ms is None:
            self.end()

    def _hold_back(self, late_ms: tuple[float, float]) -> None:
        self.end()
        command = [sys.executable, "-m", "tests.faults.delaying", *map(str, late_ms)]
        self._delaying = subprocess.Popen([*self.within, *command], stdout=subprocess.PIPE)
        assert self._delaying.stdout is not None
        if self._delaying.stdout.readline().split() != [delaying.READY.encode()]:
            raise subprocess.CalledProcessError(1, command, stderr="there is no queue of packets")

    def end(self) -> None:
        """Lose the packets that were to arrive later."""
        if self._delaying is not None:
            with self._delaying:
                self._delaying.kill()
            self._delaying = None

    def slow(self, kbit: int | None) -> None:
        """Limit sending to this rate, with a queue before it; None: no limit."""
        tc = (*self.within, "tc", "qdisc")
        if kbit is None:
            subprocess.run([*tc, "del", "dev", "eth0", "root"], capture_output=True)
        else:
            rate = ("rate", f"{kbit}kbit", "burst", "32kbit", "latency", "400ms")
            _run(*tc, "replace", "dev", "eth0", "root", "tbf", *rate)


class Network:
    """A bridge, on which this process has the first address; a context manager."""

    def __init__(self) -> None:
        self._tag = secrets.token_hex(3)
        self._bridge = f"kl{self._tag}"
        self._spaces: list[str] = []
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Network:
        taken = _run("ip", "-4", "route")
        free = [n for n in range(256) if f"{NETWORK}.{n}.0" not in taken]
        self.prefix = f"{NETWORK}.{secrets.choice(free)}"
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{self.prefix}.1/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def host(self, name: str) -> Host:
        """Add a host."""
        number = len(self.hosts) + 2
        space, cable = f"{self._bridge}-{name}", f"kl{self._tag}v{number}"
        self._spaces.append(space)
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", cable, "master", self._bridge, "up")
        made = Host(name, space, f"{self.prefix}.{number}")
        for command in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "addr", "add", f"{made.address}/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
        ):
            _run(*made.within, *command)
        self.hosts[name] = made
        return made

    def heal(self) -> None:
        """Let all hosts hear each other, at once and completely."""
        for host in self.hosts.values():
            host.hears()
            host.slow(None)

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.end()
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)
