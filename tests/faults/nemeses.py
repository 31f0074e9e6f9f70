"""Faults of a cluster while clients use it.  `Cluster.heal` undoes each."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import kafkalog
from tests.damage.powercut import disks
from tests.faults import network
from tests.faults.cluster import Cluster
from tests.faults.members import Controller, Member, Node
from tests.faults.network import Host
from tests.faults.planes import AnyKafka

Deed = Callable[[Cluster, random.Random], str]


class Nemesis(NamedTuple):
    """`deed` causes the fault and returns what it did; then the fault lasts for `hold_s`."""

    deed: Deed
    hold_s: float

    @property
    def name(self) -> str:
        return self.deed.__name__


def _hosts(members: Sequence[Node]) -> list[Host]:
    return [one.host for one in members]


def _one(cluster: Cluster, rng: random.Random) -> tuple[Node, list[Node]]:
    """A node, and the others; half the time one that leads a partition of the queue."""
    number = rng.choice([*cluster.nodes])
    if rng.random() < 0.5:
        leader = cluster.leader("queue", rng.randrange(cluster.topics.get("queue", 1)))
        number = leader if leader in cluster.nodes else number
    return cluster.nodes[number], [n for key, n in cluster.nodes.items() if key != number]


def _any(cluster: Cluster, rng: random.Random) -> Node | AnyKafka:
    """As `_one`, and sometimes Kafka's node."""
    if cluster.kafka is not None and rng.random() < 0.25:
        return cluster.kafka
    return _one(cluster, rng)[0]


def _plane(cluster: Cluster) -> list[Host]:
    """ZooKeeper's hosts, or those of controllers alone."""
    return [one.host for one in cluster.plane.members]


def _elders(cluster: Cluster) -> list[Host]:
    """Hosts that are neither our nodes nor clients."""
    kafka = [cluster.kafka.host] if cluster.kafka else []
    return [*_plane(cluster), *kafka]


def _leading(cluster: Cluster) -> Member | None:
    """The active controller, with a host of its own or a node."""
    number = cluster.controller()
    voters = {one.number: one for one in cluster.plane.members if isinstance(one, Controller)}
    return voters.get(number) or cluster.brokers.get(number)


# ---- processes ---------------------------------------------------------------------------------


def kill(cluster: Cluster, rng: random.Random) -> str:
    node = _any(cluster, rng)
    node.kill()
    return f"kill -9 of {node.number}"


def kill_all(cluster: Cluster, rng: random.Random) -> str:
    for node in cluster.nodes.values():
        node.kill()
    return "kill -9 of all nodes"


def kill_controller(cluster: Cluster, rng: random.Random) -> str:
    leader = _leading(cluster)
    if leader is None:
        return "there is no controller: nothing was killed"
    leader.kill()
    return f"kill -9 of {leader.host.name}, the controller"


def pause_controller(cluster: Cluster, rng: random.Random) -> str:
    leader = _leading(cluster)
    if leader is None:
        return "there is no controller: nothing is paused"
    leader.pause()
    return f"{leader.host.name}, the controller, is paused"


def pause(cluster: Cluster, rng: random.Random) -> str:
    node = _any(cluster, rng)
    node.pause()
    return f"{node.number} is paused"


def pause_two(cluster: Cluster, rng: random.Random) -> str:
    nodes = rng.sample([*cluster.nodes.values()], 2)
    for node in nodes:
        node.pause()
    return f"{[node.number for node in nodes]} are paused"


def rolling_restart(cluster: Cluster, rng: random.Random) -> str:
    for node in cluster.nodes.values():
        node.stop()
        node.begin(wait=False)
        cluster.all_known()
    return "all nodes stopped in order and restarted, one after the other"


def kill_plane(cluster: Cluster, rng: random.Random) -> str:
    """One of the hosts of ZooKeeper, or of the controllers."""
    if not cluster.plane.members:
        return kill_controller(cluster, rng)
    one = rng.choice(cluster.plane.members)
    one.kill()
    return f"kill -9 of {one.host.name}"


def expire_session(cluster: Cluster, rng: random.Random) -> str:
    """Half the time the controller's session."""
    number, leader = _any(cluster, rng).number, cluster.controller()
    if leader in cluster.brokers and rng.random() < 0.5:
        number = leader
    cluster.plane.expire(number)
    return f"the session of {number} ended"


def set_clock(cluster: Cluster, rng: random.Random) -> str:
    if not cluster.has_clocks:
        return pause(cluster, rng)
    node, _ = _one(cluster, rng)
    assert node.clock is not None
    ahead = rng.choice([-1, 1]) * rng.choice([0.3, 5, 60, 1800])
    node.clock.set_ahead(ahead)
    return f"the clock of {node.number} jumps by {ahead:g} s"


# ---- disks -------------------------------------------------------------------------------------


def cut_power(cluster: Cluster, rng: random.Random) -> str:
    if not cluster.has_disks:
        return kill(cluster, rng)
    node, _ = _one(cluster, rng)
    node.cut_power()
    return f"the power of {node.number} is cut"


def cut_all_power(cluster: Cluster, rng: random.Random) -> str:
    if not cluster.has_disks:
        return kill_all(cluster, rng)
    for node in cluster.nodes.values():
        node.pause()  # at one moment
    for node in cluster.nodes.values():
        node.cut_power()
        node.paused = False
    return "the power of all nodes is cut"


def fill_disk(cluster: Cluster, rng: random.Random) -> str:
    if not cluster.has_disks:
        return pause(cluster, rng)
    node, _ = _one(cluster, rng)
    node.fill()
    return f"the disk of {node.number} is full"


def slow_disk(cluster: Cluster, rng: random.Random) -> str:
    if not cluster.has_disks or disks.why_not_slow() is not None:
        return pause(cluster, rng)
    node, _ = _one(cluster, rng)
    assert node.disk is not None
    writes = rng.choice([1, 5, 20, 100])
    node.disk.slow(writes)
    return f"the disk of {node.number} takes {writes} writes a second"


# ---- the network -------------------------------------------------------------------------------


def isolate(cluster: Cluster, rng: random.Random) -> str:
    """Clients still reach it: it may believe that it leads."""
    node, others = _one(cluster, rng)
    cluster.divide([node.host], [*_hosts(others), *_elders(cluster)])
    return f"{node.number} is alone"


def cut_from_nodes(cluster: Cluster, rng: random.Random) -> str:
    node, others = _one(cluster, rng)
    cluster.divide([node.host], _hosts(others))
    return f"{node.number} reaches no other node"


def cut_from_plane(cluster: Cluster, rng: random.Random) -> str:
    """Longer than its session timeout: the session ends.  Of nodes that are their own controllers,
    one is cut from the active one, and still reached by the others."""
    node, _ = _one(cluster, rng)
    plane = _plane(cluster)
    if not plane and (leader := _leading(cluster)) is not None:
        plane = [leader.host]
        node = rng.choice([one for one in cluster.nodes.values() if one is not leader])
    cluster.divide([node.host], plane)
    return f"{node.number} reaches all but {[host.name for host in plane]}"


def isolate_controller(cluster: Cluster, rng: random.Random) -> str:
    """Clients still reach it.  Half the time it only hears nothing, or is not heard."""
    leader = _leading(cluster)
    if leader is None:
        return "there is no controller: nothing is cut off"
    others = [*_hosts([*cluster.nodes.values()]), *_elders(cluster)]
    others = [host for host in others if host is not leader.host]
    way = rng.choice(["is alone", "is alone", "hears none", "is heard by none"])
    if way != "is heard by none":
        cluster.deafen((leader.host, other) for other in others)
    if way != "hears none":
        cluster.deafen((other, leader.host) for other in others)
    return f"{leader.host.name}, the controller, {way}"


def one_way(cluster: Cluster, rng: random.Random) -> str:
    node, others = _one(cluster, rng)
    if rng.random() < 0.5:
        cluster.deafen((node.host, other) for other in _hosts(others))
        return f"{node.number} hears no other node"
    cluster.deafen((other, node.host) for other in _hosts(others))
    return f"no other node hears {node.number}"


def bridge(cluster: Cluster, rng: random.Random) -> str:
    """With three nodes this is the ring in which each sees a majority, too."""
    node, others = _one(cluster, rng)
    half = len(others) // 2
    cluster.divide(_hosts(others[:half]), _hosts(others[half:]))
    return f"only {node.number} reaches all nodes"


def some_links(cluster: Cluster, rng: random.Random) -> str:
    hosts = [*_hosts([*cluster.nodes.values()]), *_elders(cluster)]
    pairs = [pair for pair in itertools.permutations(hosts, 2) if rng.random() < 0.3]
    cluster.deafen(pairs)
    return ", ".join(f"{one.name} does not hear {other.name}" for one, other in pairs)


def loss(cluster: Cluster, rng: random.Random) -> str:
    part = rng.choice([0.02, 0.05, 0.1, 0.2])
    for host in cluster.network.hosts.values():
        host.hears(loss=part)
    return f"{part:.0%} of all packets are lost"


def delay(cluster: Cluster, rng: random.Random) -> str:
    """Packets overtake each other, too."""
    if network.why_not_late() is not None:
        return slow(cluster, rng)
    most = rng.choice([10, 50, 200])
    late = (most / 10, most)
    if rng.random() < 0.5:
        for host in cluster.network.hosts.values():
            host.hears(late_ms=late)
        return f"all packets are {late[0]:g} to {most} ms late"
    node, _ = _one(cluster, rng)
    node.host.hears(late_ms=late)
    return f"{node.number} hears everything {late[0]:g} to {most} ms late"


def reset(cluster: Cluster, rng: random.Random) -> str:
    """One side of a connection gets a reset, the other learns of it when it sends."""
    if network.why_not_late() is not None:
        return loss(cluster, rng)
    part = rng.choice([0.001, 0.005, 0.02])
    for host in cluster.network.hosts.values():
        host.hears(resets=part)
    return f"{part:.1%} of all packets end their connection"


def swizzle(cluster: Cluster, rng: random.Random) -> str:
    """Cut some off one after the other, and reconnect them in another order; the last one stays
    cut off."""
    nodes = rng.sample([*cluster.nodes.values()], rng.choice([2, 3]))
    order = rng.sample(nodes, len(nodes))
    for node in nodes:
        cluster.deafen((node.host, other) for other in cluster.network.hosts.values())
        threading.Event().wait(rng.uniform(0.2, 2))
    for node in order[:-1]:
        cluster.hear(node.host)
        threading.Event().wait(rng.uniform(0.2, 2))
    said = [[node.number for node in some] for some in (nodes, order)]
    return f"{said[0]} cut off, one after the other; then back: {said[1]}"


def slow(cluster: Cluster, rng: random.Random) -> str:
    node, _ = _one(cluster, rng)
    kbit = rng.choice([300, 1000, 3000])
    node.host.slow(kbit)
    return f"{node.number} sends {kbit} kbit/s"


# ---- actions of an operator --------------------------------------------------------------------


def move(cluster: Cluster, rng: random.Random) -> str:
    """Reassign every partition of the queue to other nodes, in another order."""
    partitions = cluster.topics["queue"]
    places = {("queue", n): rng.sample(cluster.keepers, rng.choice([2, 3]))
              for n in range(partitions)}  # fmt: skip
    return _moved(cluster, places)


def move_back(cluster: Cluster, rng: random.Random) -> str:
    """Reassign them to their first nodes."""
    places = {("queue", n): cluster.places(n, True) for n in range(cluster.topics["queue"])}
    return _moved(cluster, places)


def _moved(cluster: Cluster, places: dict[tuple[str, int], list[int]]) -> str:
    with kafkalog.Admin(cluster.bootstrap, api_timeout_ms=20_000) as admin:
        try:
            found = admin.alter_partition_reassignments(places)
        except kafkalog.KafkalogError as failed:
            return f"moving failed: {failed}"
    return f"moves {places}: {len(found.done)} begun, {found.errors}"


def elect(cluster: Cluster, rng: random.Random) -> str:
    """Elect preferred leaders."""
    wanted = [(topic, n) for topic, count in cluster.topics.items() for n in range(count)]
    admin = kafkalog.Admin(cluster.bootstrap, api_timeout_ms=20_000)
    with contextlib.suppress(kafkalog.KafkalogError), admin:
        return f"{len(admin.elect_leaders(wanted).done)} preferred leaders were elected"
    return "no leader could be elected"


PROCESSES = [
    Nemesis(kill, 3), Nemesis(kill_all, 1), Nemesis(pause, 7), Nemesis(pause_two, 6),
    Nemesis(rolling_restart, 1), Nemesis(kill_controller, 5), Nemesis(kill_plane, 5),
    Nemesis(pause_controller, 7), Nemesis(set_clock, 5),
]  # fmt: skip
DISKS = [
    Nemesis(cut_power, 3), Nemesis(cut_all_power, 1), Nemesis(fill_disk, 6),
    Nemesis(slow_disk, 8),
]  # fmt: skip
NETWORK = [
    Nemesis(isolate, 8), Nemesis(cut_from_nodes, 8), Nemesis(cut_from_plane, 9),
    Nemesis(one_way, 8), Nemesis(bridge, 8), Nemesis(some_links, 8), Nemesis(loss, 6),
    Nemesis(slow, 6), Nemesis(delay, 6), Nemesis(reset, 6), Nemesis(swizzle, 1),
    Nemesis(isolate_controller, 8),
]  # fmt: skip
OPERATOR = [Nemesis(elect, 2), Nemesis(move, 4), Nemesis(move_back, 4)]
OF_QUORUMS = [*PROCESSES, *DISKS, *NETWORK, *OPERATOR]
"""Those of clusters under controllers of their own."""
ALL = [*OF_QUORUMS, Nemesis(expire_session, 2)]
"""Those of clusters on ZooKeeper."""
