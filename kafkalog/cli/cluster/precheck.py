"""`kafkalog cluster precheck`: whether a node could join a cluster; nothing is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line, plural
from kafkalog.cli.remote import say
from kafkalog.cli.serve import settings_from

if TYPE_CHECKING:
    from kafkalog.cluster.node.facts import Finding
    from kafkalog.config.server import ServerConfig
    from kafkalog.config.server_properties import Properties
    from kafkalog.directory.identity import Found

__all__ = ["checked_settings", "run"]


def run(options: argparse.Namespace, words: list[str]) -> int:
    """Show all findings; returns 1 if the node would be refused."""
    from kafkalog.cluster.node.facts import REFUSE, WARN, Finding
    from kafkalog.errors import ArgumentError

    if words:
        raise UsageError(f"precheck: takes no {words[0]!r}; see kafkalog cluster precheck --help")
    found: list[Finding] = []
    try:
        given = settings_from(options)
        for note in given.notes:
            name, _, what = note.partition(": ")
            found.append(Finding(WARN, name, what, ""))
        found += _findings(options, given)
    except ArgumentError as problem:
        found.append(Finding(REFUSE, "settings", str(problem), ""))
    refused = [one for one in found if one.severity == REFUSE]
    warned = [one for one in found if one.severity != REFUSE]
    _show(options, [*refused, *warned])
    if not options.json:
        warnings = plural(len(warned), "warning")
        say(f"the node would be refused: {plural(len(refused), 'reason')}, {warnings}"
            if refused else f"the node may join; {warnings}")  # fmt: skip
    return 1 if refused else 0


def _show(options: argparse.Namespace, found: list[Finding]) -> None:
    for one in found:
        if options.json:
            print(json_line(one._asdict()))
            continue
        print(f"{one.severity:<6}  {one.subject}: {one.problem}")
        if one.remedy:
            print(f"{'':<6}  {one.remedy}")


def checked_settings(given: Properties) -> ServerConfig:
    """The settings of a node of a cluster on ZooKeeper.  Raises: ArgumentError."""
    from kafkalog.config.protection import refuse_protections
    from kafkalog.config.served import check_served
    from kafkalog.config.server import ServerConfig

    refuse_protections({**given.config, "zookeeper.connect": "the caller looks at it"})
    config = ServerConfig.of(given.config)
    check_served(config)
    return config


def _findings(options: argparse.Namespace, given: Properties) -> list[Finding]:
    """The findings of a start with these settings.

    Raises: ArgumentError: the settings or the directory are refused; UsageError, ZooKeeperAway.
    """
    from kafkalog.directory.identity import Found, look, node_number
    from kafkalog.replication.inter_broker import node_securities
    from kafkalog.server.listener_keys import ListenerKeys
    from kafkalog.server.network.listeners import planned

    config = checked_settings(given)
    ListenerKeys(config, planned(config), "precheck")
    node_securities(config)
    if not config.zookeeper_connect:
        raise UsageError(
            "precheck: give --zookeeper HOST:PORT,.../CHROOT, or a --config with zookeeper.connect"
        )
    path = options.dir or given.directory
    found = Found(None, ()) if path is None else look(path)
    number = config.node_id if config.explicit("node.id") else None
    node = node_number(path or "the directory", found.meta, number, True)
    return _in_cluster(path or "the directory", found, config, node)


def _in_cluster(path: str, found: Found, config: ServerConfig, node: int) -> list[Finding]:
    from kafkalog.cluster.node import joining
    from kafkalog.cluster.node.facts import WARN, Candidate, Finding
    from kafkalog.cluster.node.gathering import gather
    from kafkalog.replication.inter_broker import node_securities
    from kafkalog.zookeeper.reading import read_tree
    from kafkalog.zookeeper.security import security_of
    from kafkalog.zookeeper.session import Timeouts, open_session

    joining.check_alone(path, found)
    timeouts = Timeouts(*config.zookeeper_timeouts_ms)
    security = security_of(config)
    with open_session(config.zookeeper_connect, lambda _: None, timeouts, security) as session:
        image = read_tree(session, node).image
        joining.check_cluster(path, found, image.cluster_id, session)
        mine = Candidate(node, config, joining.is_known(found, image.cluster_id))
        facts = gather(session, image, node, node_securities(config))
    some = joining.assess(facts, mine).found
    if node in image.brokers:
        some.append(Finding(
            WARN, "node.id", f"broker {node} is alive.",
            "Stop it before this node takes its place, or give this node another id."))  # fmt: skip
    return some
