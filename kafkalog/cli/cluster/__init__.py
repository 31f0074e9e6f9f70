"""`kafkalog cluster`: the nodes of a cluster, the replicas of its partitions, and their leaders.

One module per action; `plan` decides what to move, `moving` moves it.
"""

import argparse
import importlib
from typing import Any

from kafkalog.cli.common import UsageError, count_argument, port_argument, repeated
from kafkalog.cli.remote import action_of, add_bootstrap, open_cluster

EXAMPLES = """\
example:
  kafkalog cluster try
  kafkalog cluster status --bootstrap-server localhost:9092
  kafkalog cluster drain 3 --replicas --execute --bootstrap-server localhost:9092
  kafkalog cluster reassign --to 1,2,4 --bootstrap-server localhost:9092
  kafkalog cluster reassign orders --replication-factor 3 --throttle 50000000 --execute \\
      --bootstrap-server localhost:9092
  kafkalog cluster elect --bootstrap-server localhost:9092
  kafkalog cluster check orders --bootstrap-server localhost:9092
  kafkalog cluster log-dirs 1 --bootstrap-server localhost:9092
  kafkalog cluster unregister 3 --bootstrap-server localhost:9092
  kafkalog cluster precheck --zookeeper zoo1:2181/kafka --config server.properties
  kafkalog cluster adopt --dir data --zookeeper zoo1:2181/kafka --node-id 4
  kafkalog cluster adopt --dir data --config server.properties --execute
"""

ACTIONS = {
    "status": "show nodes, leaders, replicas out of sync and moves (the default)",
    "drain": "move leaderships off a node; with --replicas its replicas, too",
    "reassign": "spread replicas and leaders evenly, moving as little as possible",
    "elect": "make the preferred replica of each partition its leader again",
    "check": "compare the records of all replicas, as far as all have them",
    "id": "print the cluster's id",
    "endpoints": "show the brokers' addresses and racks",
    "log-dirs": "show the log directories of all nodes, or of those that are named",
    "unregister": "let the cluster forget a broker that is gone for good (KRaft)",
    "precheck": "check whether a node could join a cluster; takes serve's options",
    "try": "run a cluster of three nodes on this machine: start here",
    "adopt": "turn a single broker's directory into that of a cluster's node",
}
MODULES = {
    "try": "trying.run",
    "id": "nodes.cluster_id",
    "endpoints": "nodes.endpoints",
    "log-dirs": "nodes.log_dirs",
    "unregister": "nodes.unregister",
}
"""The modules and functions of actions that have no module of their name."""
LOCAL = ("try", "adopt", "precheck")
"""Actions that need no broker."""
OPTIONS = {
    "json": ("status", "check", "endpoints", "log-dirs", "precheck"),
    "include_fenced_brokers": ("endpoints",),
    "topic_list": ("log-dirs",),
    "replicas": ("drain",),
    "to": ("reassign",),
    "replication_factor": ("reassign",),
    "cancel": ("reassign",),
    "watch": ("reassign",),
    "execute": ("drain", "reassign", "adopt"),
    "throttle": ("drain", "reassign"),
    "no_wait": ("drain", "reassign"),
    "unclean": ("elect",),
    "yes": ("elect",),
    "dir": ("try", "adopt", "precheck"),
    "zookeeper": ("try", "adopt", "precheck"),
    "port": ("try",),
    "demo": ("try",),
    "draw": ("try",),
    "security": ("try",),
    "node_id": ("adopt", "precheck"),
    "config": ("adopt", "precheck"),
    "listen": ("adopt", "precheck"),
    "set": ("adopt", "precheck"),
}
"""The options that belong to some actions only."""
DEFAULT = "status"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser, required=False)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ACTION WORD",
        help="the action, then topics (orders, orders:0,2-5; default: all) or, for drain, "
        "unregister and log-dirs, nodes",
    )
    parser.set_defaults(action=None)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--include-fenced-brokers", action="store_true", help="endpoints: also those that are down"
    )
    parser.add_argument("--topic-list", metavar="TOPIC,...", help="log-dirs: only these topics")
    _moving(parser.add_argument_group("drain, reassign"))
    group = parser.add_argument_group("elect")
    group.add_argument(
        "--unclean",
        action="store_true",
        help="elect: if no replica in sync is alive, let any live one lead; records that it "
        "lacks are lost; asks first",
    )
    group.add_argument("--yes", action="store_true", help="elect --unclean: do not ask")
    _here(parser.add_argument_group("try, adopt, precheck"))
    _node(parser.add_argument_group("adopt, precheck"))


def _here(group: Any) -> None:
    group.add_argument(
        "--dir",
        metavar="DIR",
        help="try: the folder for everything (kafkalog-try); adopt, precheck: the directory",
    )
    group.add_argument(
        "--zookeeper",
        nargs="?",
        const="",
        metavar="HOST:PORT,.../CHROOT",
        help="try: a cluster on ZooKeeper instead of controllers of its own: a running one, or "
        "without an address one that it starts; adopt, precheck: the cluster's ZooKeeper",
    )
    group.add_argument(
        "--port",
        type=port_argument,
        default=19092,
        metavar="N",
        help="try: the first node's port (19092); the other nodes', then those of the controllers "
        "or ZooKeeper's, follow; 0: free ports",
    )
    group.add_argument(
        "--demo",
        action="store_true",
        help="try: kill a leader while records are written, and report what became of them",
    )
    group.add_argument("--draw", metavar="FILE.svg", help="try --demo: draw the run")
    group.add_argument(
        "--security",
        choices=("ssl", "sasl_plaintext", "sasl_ssl"),
        help="try: protect the connections of nodes, controllers and clients; certificates, a user "
        "and the clients' settings are made for it",
    )
    group.add_argument(
        "--node-id",
        type=int,
        metavar="N",
        help="adopt, precheck: the node's id (default: the one in the directory)",
    )


def _node(group: Any) -> None:
    group.add_argument(
        "--config", metavar="FILE", help="adopt, precheck: the server.properties file of the node"
    )
    group.add_argument(
        "--listen", metavar="HOST:PORT", help="adopt, precheck: where it is to accept connections"
    )
    repeated(
        group,
        "--set",
        metavar="NAME=VALUE",
        help="adopt, precheck: a setting of it; may be repeated",
    )


def _moving(group: Any) -> None:
    group.add_argument(
        "--replicas", action="store_true", help="drain: also move the node's replicas to others"
    )
    group.add_argument(
        "--to",
        metavar="NODE,...",
        help="reassign: the nodes that get replicas (default: all that are running)",
    )
    group.add_argument(
        "--replication-factor",
        type=count_argument,
        metavar="N",
        help="reassign: replicas of each partition (default: as many as it has)",
    )
    group.add_argument(
        "--execute",
        action="store_true",
        help="carry it out, and show the progress; without this the plan is only shown",
    )
    group.add_argument(
        "--throttle",
        type=count_argument,
        metavar="BYTES",
        help="bytes a second that each node may copy, in and out, until the move is done",
    )
    group.add_argument(
        "--no-wait", action="store_true", help="--execute: start it, and do not wait for its end"
    )
    group.add_argument(
        "--watch", action="store_true", help="reassign: show the progress until the move is done"
    )
    group.add_argument(
        "--cancel",
        action="store_true",
        help="reassign: cancel the move (of these topics): replicas stay where they were",
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    name, _, function = MODULES.get(action, f"{action}.run").partition(".")
    do = getattr(importlib.import_module(f"kafkalog.cli.cluster.{name}"), function)
    if action in LOCAL:
        return int(do(options, words))
    if options.bootstrap_server is None:
        raise UsageError(f"cluster {action}: give --bootstrap-server HOST:PORT, a node of it")
    with open_cluster(options) as cluster:
        return int(do(cluster, options, words))
