"""`kafka.*`: the consumer settings that a read from brokers uses."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from .errors import BadOption
from .option_table import CLIENT, NO_MEANING

SERVERS = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
PROTOCOL = "kafka.security.protocol"
_SAFE = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")


def is_ignored(name: str, over_the_wire: bool) -> bool:
    """True if a `kafka.*` option has no effect; none has one for a directory."""
    setting = name.removeprefix("kafka.")
    return not over_the_wire or not name.startswith("kafka.") or setting in NO_MEANING


def client_settings(servers: str, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The client's settings, by Kafka's names, checked.

    Raises: BadOption for servers that are no addresses, an unknown setting, or an invalid
    value.
    """
    from kafkalog import KafkalogError
    from kafkalog.client.link.transport import parse_servers
    from kafkalog.config.consumer import ConsumerConfig

    settings = {}
    for name, text in given.items():
        if not name.startswith("kafka.") or name in (SERVERS, ISOLATION):
            continue
        setting = name.removeprefix("kafka.")
        if protects_nothing(name, text):
            continue
        if setting in CLIENT:
            settings[setting] = text.strip()
        elif setting not in NO_MEANING:
            raise BadOption(f"option {name!r}: no such setting of a consumer; {_near(setting)}")
    try:
        parse_servers(servers)
    except KafkalogError as error:
        raise BadOption(f"option {SERVERS!r}: {error}") from None
    try:
        ConsumerConfig(settings)
    except KafkalogError as error:
        raise BadOption(f"option 'kafka.*': {error}") from None
    return tuple(sorted(settings.items()))


def protects_nothing(name: str, text: str) -> bool:
    """True if an option asks for the only kind of connection there is.

    Raises: BadOption for one that asks for encryption or a password.
    """
    if name == PROTOCOL and text.strip().upper() == "PLAINTEXT":
        return True
    if name.startswith(_SAFE):
        raise BadOption(
            f"option {name!r}: found {_hidden(name, text)}, but connections to brokers are without "
            "encryption and passwords only (kafka.security.protocol=PLAINTEXT)"
        )
    return False


def _hidden(name: str, text: str) -> str:
    """A value for a message; not one that may be a secret."""
    return repr(text) if name == PROTOCOL else "one"


def _near(setting: str) -> str:
    near = get_close_matches(setting, [*CLIENT, *NO_MEANING], n=1, cutoff=0.6)
    return f"did you mean kafka.{near[0]}?" if near else f"known: {', '.join(CLIENT)}"
