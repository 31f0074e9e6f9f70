"""`kafkalog serve`: runs a broker on a port, until SIGTERM or Ctrl-C."""

import argparse
import contextlib
import gc
import logging
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, repeated, settings_of
from kafkalog.cli.signals import on_signals

if TYPE_CHECKING:
    from kafkalog.config.server_properties import Properties
    from kafkalog.server.broker import Broker
    from kafkalog.server.controller import Controller

EXAMPLES = """\
example:
  kafkalog serve --dir data --listen 127.0.0.1:9092
  kafkalog serve --config server.properties --log-format json
  kafkalog serve --dir data --listen '[::1]:9092' --set auto.create.topics.enable=false
  kafkalog serve --dir data --zookeeper zoo1:2181,zoo2:2181/kafka --node-id 4
"""

SWITCH_S = 0.001
"""Python's thread switch interval: a request of 20,000 partitions takes a tenth of a second, and
small requests at the same time need several switches each.  A broker inside another program keeps
Python's own 5 ms: that program decides."""
LOOK_S = 1.0
"""How often the main thread lets handlers of signals run that did not wake it up."""
RESTART = signal.SIGUSR1
"""The signal after which `serve` reads its file again, and restarts in its process."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--dir", help="the data directory (default: log.dirs of --config)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to accept connections (default 127.0.0.1:9092); port 0 picks a free one, "
        "unix:/path is a Unix socket; overrides the listeners of --config",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a server.properties file, with Kafka's settings"
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,.../CHROOT",
        help="be a node of the cluster on this ZooKeeper (docs/cluster.md)",
    )
    parser.add_argument("--node-id", metavar="N", help="this broker's id")
    repeated(
        parser,
        "--set",
        metavar="NAME=VALUE",
        help="a setting (docs/settings.md), overrides the file; may be repeated",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="the format of log lines on stderr (default: kafkalog.log.format, text)",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="INFO", help="the lowest level that is logged"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    found = settings_from(options)
    directory = options.dir or found.directory
    if directory is None:
        raise UsageError("--dir: give a data directory, or log.dirs in --config")
    _set_up_lines(found, options, options.log_level)
    return _serve(directory, found.config, lambda: _again(options, directory))


def _again(options: argparse.Namespace, directory: str) -> dict[str, object]:
    """The settings as they are now.

    Raises: as settings_from; UsageError: the file names another directory.
    """
    found = settings_from(options)
    if options.dir is None and found.directory != directory:
        raise UsageError(f"log.dirs: found {found.directory}, wanted {directory}, as at the start")
    _set_up_lines(found, options, None)  # an operator may have set levels since
    return found.config


def _set_up_lines(found: "Properties", options: argparse.Namespace, level: str | None) -> None:
    """Log as asked; `level` None: as it is.  First, the settings of the file that have no effect.

    Raises: InvalidSetting.
    """
    from kafkalog.config.server import ServerConfig
    from kafkalog.logs import lines

    form = options.log_format or ServerConfig.of(found.config).kafkalog_log_format
    lines.set_up(form, level)
    logger = logging.getLogger("kafkalog.server")
    for note in found.notes:
        logger.warning("%s: %s", options.config, note)


def settings_from(options: argparse.Namespace) -> "Properties":
    """The settings of the broker: those of --config, then --set, then the other options.

    Raises: UsageError, InvalidSetting, OSError.
    """
    from kafkalog.config.server import ServerConfig
    from kafkalog.config.server_properties import Properties, read_properties, sorted_out
    from kafkalog.server.network.listeners import named

    found = Properties({}, (), ())
    if options.config is not None:
        found = sorted_out(read_properties(options.config))
    found.config.update(settings_of(options.set))
    if options.listen is not None:
        found.config["listeners"] = named(options.listen)
        found.config.setdefault("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    if options.zookeeper is not None:
        found.config["zookeeper.connect"] = options.zookeeper
    if options.node_id is not None:
        found.config["node.id"] = options.node_id
    found.config.setdefault("listeners", "PLAINTEXT://127.0.0.1:9092")
    delay = ServerConfig.group_initial_rebalance_delay_ms
    found.config.setdefault(delay.name, delay.default)
    return found


def _node(
    directory: str, config: dict[str, object], ends: threading.Event
) -> "Broker | Controller":
    from kafkalog.config.server import ServerConfig

    if ServerConfig.of(config).serves_clients:
        from kafkalog.server.broker import serve_until

        return serve_until(ends, directory, config)
    from kafkalog.server.controller import Controller

    return Controller(directory, config)


def _places(node: "Broker | Controller") -> str:
    """The addresses of a node, and whom they are for."""
    from kafkalog.server.broker import Broker

    if isinstance(node, Broker):
        return node.bootstrap_servers
    return f"{node.bootstrap_controllers} as a controller"


def _say(directory: str, node: "Broker | Controller") -> None:
    from kafkalog.server.network.listeners import exposed

    print(f"kafkalog serves {directory} at {_places(node)}", flush=True)
    if node.http_address:
        console = "console, " * node.config.kafkalog_console_enable
        print(f"{console}metrics and health: {node.http_url.rstrip('/')}", flush=True)
    for listener in exposed(node.config):
        print(
            f"WARNING: listener {listener.name} ({listener.host or 'all addresses'}, port "
            f"{listener.port}) asks nobody for a password or a certificate: everyone who "
            "reaches it is User:ANONYMOUS",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _restart(
    node: "Broker | Controller", directory: str, again: Callable[[], dict[str, object]],
    ends: threading.Event,
) -> None:  # fmt: skip
    """Restart a broker in this process with the settings as they are now.  `ends`: set once the
    process is to end.

    Raises: the errors of Broker: it could not go on with the settings that it had, either.
    """
    from kafkalog.errors import Closed, KafkalogError
    from kafkalog.server.broker import Broker

    logger = logging.getLogger("kafkalog.server")
    if ends.is_set():
        return
    if not isinstance(node, Broker):
        logger.error("%s: a controller alone does not restart at a signal", directory)
        return
    try:
        node.restart(again())
    except (KafkalogError, UsageError, OSError) as problem:
        if isinstance(problem, Closed) and ends.is_set():
            return
        logger.error("%s: does not restart as asked: %s", directory, problem)
        if isinstance(problem, Closed):
            raise
        return
    _say(directory, node)


def _next(signals: "queue.SimpleQueue[int]") -> int:
    """The next signal.

    Python runs a handler with the main thread's next instruction.  A signal that comes between the
    last one and the wait, or to another thread, does not end the wait.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return signals.get(timeout=LOOK_S)


def _until_signal(
    node: "Broker | Controller", directory: str, again: Callable[[], dict[str, object]],
    signals: "queue.SimpleQueue[int]", ends: threading.Event,
) -> None:  # fmt: skip
    """Serve, and restart as asked, until the signal after which the process ends."""
    while (number := _next(signals)) == RESTART:
        _restart(node, directory, again, ends)
    name = signal.Signals(number).name
    kind = "broker" if node.config.serves_clients else "controller"
    logging.getLogger("kafkalog.server").info("%s: the %s ends", name, kind)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's garbage collector: hardly anything that a start makes is garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _serve(
    directory: str, config: dict[str, object], again: Callable[[], dict[str, object]]
) -> int:
    from kafkalog.errors import Closed

    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    ends = threading.Event()

    def came(number: int) -> None:
        signals.put(number)
        if number != RESTART:
            ends.set()

    sys.setswitchinterval(SWITCH_S)
    # Before the broker starts: an early signal must not interrupt its start halfway.
    with on_signals(came, again=RESTART):
        try:
            with _uncollected():
                node = _node(directory, config, ends)
        except Closed as problem:  # while it waited for controllers
            if not ends.is_set():
                raise
            logging.getLogger("kafkalog.server").info("%s: did not start: %s", directory, problem)
        else:
            with node:
                _say(directory, node)
                _until_signal(node, directory, again, signals, ends)
    print("kafkalog ended", file=sys.stderr)
    return 0
