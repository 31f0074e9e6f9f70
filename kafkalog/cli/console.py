"""`kafkalog console`: the console in the browser, for any Kafka cluster."""

import argparse
import sys
import threading

from kafkalog.cli.common import UsageError, repeated
from kafkalog.cli.remote import add_bootstrap, client_config
from kafkalog.cli.signals import on_signals

EXAMPLES = """\
example:
  kafkalog console --bootstrap-server localhost:9092
  kafkalog console --bootstrap-server kafka1:9093 --command-config client.properties \\
      --listen 0.0.0.0:9480 --tls console.pem --host console.example.org
"""

LISTEN = "127.0.0.1:9480"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    parser.add_argument(
        "--listen", default=LISTEN, metavar="HOST:PORT",
        help=f"where browsers find it (default {LISTEN}); port 0 picks a free one",
    )  # fmt: skip
    parser.add_argument(
        "--tls",
        metavar="FILE",
        help="for https: a PEM file with a private key and certificates",
    )
    repeated(
        parser, "--host", metavar="NAME",
        help="a host name in its URL, besides localhost and addresses; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--write", action="store_true",
        help="let users also produce messages, create and delete topics, and move groups, as far "
        "as their own rights allow it",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    from kafkalog.config.metrics import MetricsSettings
    from kafkalog.console.person import Place, checked
    from kafkalog.console.server import ConsoleServer, tls_of
    from kafkalog.console.web import Settings, Web
    from kafkalog.errors import InvalidSetting
    from kafkalog.logs.lines import set_up
    from kafkalog.server.network.listeners import is_loopback

    try:
        place = MetricsSettings({"kafkalog.http.listen": options.listen}).http_place
    except InvalidSetting as problem:
        raise UsageError(str(problem).replace("kafkalog.http.listen", "--listen")) from None
    if place is None:
        raise UsageError("--listen: found nothing, wanted host:port")
    client = checked(client_config(options), "--command-config")
    tls = None if options.tls is None else tls_of(options.tls, "--tls")
    hosts = frozenset(name.lower() for name in options.host)
    cluster = Place(lambda: str(options.bootstrap_server), client)
    ends = threading.Event()
    with on_signals(lambda _: ends.set()):
        server = ConsoleServer(
            *place, "kafkalog", Web(Settings(cluster, options.write, hosts)), tls, "--listen"
        )
        set_up("text", "INFO")  # changes, by whom, and failed logins
        print(f"console: {server.url}", flush=True)
        if cluster.logs_in and tls is None and not is_loopback(place[0]):
            print(f"WARNING: passwords come to {place[0]} without encryption: give --tls",
                  file=sys.stderr, flush=True)  # fmt: skip
        try:
            while not ends.wait(1.0):
                pass
        finally:
            server.close()
    print("console ended", file=sys.stderr)
    return 0
