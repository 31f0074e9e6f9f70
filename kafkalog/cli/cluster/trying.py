"""`kafkalog cluster try`: a cluster of three nodes on this machine, in one folder."""

from __future__ import annotations

import argparse
import shlex
import threading

from kafkalog.cli.cluster.processes import Process
from kafkalog.cli.cluster.tried import Tried
from kafkalog.cli.common import UsageError, warn
from kafkalog.cli.remote import say
from kafkalog.cli.signals import on_signals

__all__ = ["run"]

WATCH_S = 0.2


def run(options: argparse.Namespace, words: list[str]) -> int:
    """Start all, print what to do with it, and stop all at Ctrl-C."""
    if words:
        raise UsageError(f"try takes only options, not {words[0]!r}")
    if options.draw and not options.demo:
        raise UsageError("--draw: needs --demo")
    if options.security and options.demo:
        raise UsageError("--security: found with --demo, wanted one of them")
    over = threading.Event()

    def interrupt() -> None:
        if options.demo:  # which does not wait for `over`
            raise KeyboardInterrupt

    folder = options.dir or "kafkalog-try"
    with (
        on_signals(lambda _: over.set(), interrupt),
        Tried(folder, options.port, options.zookeeper, options.security) as tried,
    ):
        if options.demo:
            from kafkalog.cli.cluster.demo import show

            return show(tried, options.draw)
        _tell(tried, folder)
        reported: set[str] = set()
        while not over.wait(WATCH_S):
            for process in tried.processes:
                if process.ended is not None and process.name not in reported:
                    reported.add(process.name)
                    warn(f"{process.name} {process.ended}{_again(tried, process)}")
        say("ending all")
    say(f"the data stay in {folder}: the same command uses them again, rm -r {folder} deletes them")
    return 0


def _again(tried: Tried, process: Process) -> str:
    """How to restart it by hand."""
    if process is tried.zookeeper:
        return ": Ctrl-C, and the same command again"
    return f"; to start it again: kafkalog serve --config {shlex.quote(process.command[-1])}"


def _quorum(tried: Tried, more: str) -> str:
    """The command that shows the controllers, if the nodes are."""
    return "" if tried.on_zookeeper else f"\n  kafkalog quorum{more}"


def _tell(tried: Tried, folder: str) -> None:
    say(f"a cluster of three nodes, in {folder} (logs: {folder}/node1.log ...)")
    for node, process in tried.nodes.items():
        say(f"  node {node}     {tried.address(node)}  pid {process.pid}")
    if tried.zookeeper is not None:
        say(f"  ZooKeeper  {tried.zookeeper.hosts}  pid {tried.zookeeper.pid}")
    file = tried.client_file
    more = f" --command-config {shlex.quote(file)}" if file else ""
    say(f"""
in another terminal:
  export KAFKALOG_BOOTSTRAP_SERVERS={tried.servers}
  kafkalog cluster status{more}{_quorum(tried, more)}
  kafkalog topics create orders --partitions 6{more}
  seq 1 100000 | kafkalog produce - --topic orders{more}
  kill -9 {tried.nodes[1].pid}     # a node dies: nothing that was acknowledged is lost
  kafkalog cluster status{more}
  kafkalog consume --topic orders --max-messages 10{more}
  kafkalog cluster check{more}
Kafka's own clients and tools work with it as well.  Ctrl-C ends all.""")
