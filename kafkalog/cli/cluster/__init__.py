"""`kafkalog cluster`: the nodes of a cluster, the copies of its partitions, and who leads them.

A module for each action; `plan` decides what is moved, `moving` moves it.
"""

import argparse
import importlib
from typing import Any

from kafkalog.cli.common import UsageError, count_argument
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
  kafkalog cluster adopt --dir data --zookeeper zoo1:2181/kafka --node-id 4
"""

ACTIONS = {
    "status": "nodes, leaders, what is not in sync, what is moved (done when no action is given)",
    "drain": "let a node lead nothing, with --replicas keep nothing, so that it can be ended",
    "reassign": "spread replicas and leaders evenly, moving as little as can be",
    "elect": "let the first replica of each partition lead, where another one does",
    "check": "compare all copies, record by record, as far as all have them",
    "try": "three nodes and a ZooKeeper on this machine, in one folder, until Ctrl-C: begin here",
    "adopt": "make a directory that was served alone a cluster's node's, with its topics",
}
MODULES = {"try": "trying"}
"""Of actions whose name is none for a module."""
LOCAL = ("try", "adopt")
"""Those that ask no broker."""
OPTIONS = {
    "json": ("status", "check"),
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
    "dir": ("try", "adopt"),
    "zookeeper": ("try", "adopt"),
    "port": ("try",),
    "demo": ("try",),
    "draw": ("try",),
    "node_id": ("adopt",),
}
"""The options that only some actions have."""
DEFAULT = "status"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser, required=False)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ACTION WORD",
        help="; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
        + "; then topics (orders, orders:0,2-5), where none is all; of drain the node",
    )
    parser.set_defaults(action=None)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    _moving(parser.add_argument_group("drain, reassign"))
    group = parser.add_argument_group("elect")
    group.add_argument(
        "--unclean",
        action="store_true",
        help="elect: who lives leads, where nobody does who is in sync; what only others had is "
        "lost; asks first",
    )
    group.add_argument("--yes", action="store_true", help="elect --unclean: without asking")
    _here(parser.add_argument_group("try, adopt"))


def _here(group: Any) -> None:
    group.add_argument(
        "--dir",
        metavar="DIR",
        help="try: where all is kept (kafkalog-try); adopt: the directory",
    )
    group.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,.../CHROOT",
        help="try: one that runs, in place of its own; adopt: the cluster's",
    )
    group.add_argument(
        "--port",
        type=int,
        default=19092,
        metavar="N",
        help="try: of the first node (19092), the others' and ZooKeeper's follow; 0: free ones",
    )
    group.add_argument(
        "--demo",
        action="store_true",
        help="try: kill a leader while records are written, and say what became of them",
    )
    group.add_argument("--draw", metavar="FILE.svg", help="try --demo: draw it")
    group.add_argument(
        "--node-id",
        type=int,
        metavar="N",
        help="adopt: the number that it gets (default: the one that it has)",
    )


def _moving(group: Any) -> None:
    group.add_argument(
        "--replicas", action="store_true", help="drain: move the node's copies to others, too"
    )
    group.add_argument(
        "--to",
        metavar="NODE,...",
        help="reassign: the nodes that are to have copies (default: all that are there)",
    )
    group.add_argument(
        "--replication-factor",
        type=count_argument,
        metavar="N",
        help="reassign: copies of each partition (default: as many as it has)",
    )
    group.add_argument(
        "--execute", action="store_true", help="do it, and show how far it is; else it is shown"
    )
    group.add_argument(
        "--throttle",
        type=count_argument,
        metavar="BYTES",
        help="what each node may copy a second, in and out, until all is moved",
    )
    group.add_argument(
        "--no-wait", action="store_true", help="--execute: begin it, and do not wait for its end"
    )
    group.add_argument(
        "--watch", action="store_true", help="reassign: show how far it is, until all is moved"
    )
    group.add_argument(
        "--cancel",
        action="store_true",
        help="reassign: give up what is moved (of these topics): all stays where it was",
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    name = MODULES.get(action, action)
    module = importlib.import_module(f"kafkalog.cli.cluster.{name}")
    if action in LOCAL:
        return int(module.run(options, words))
    if options.bootstrap_server is None:
        raise UsageError(f"cluster {action}: give --bootstrap-server HOST:PORT, a node of it")
    with open_cluster(options) as cluster:
        return int(module.run(cluster, options, words))
