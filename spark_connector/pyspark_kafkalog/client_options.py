"""`kafka.*`: the consumer settings that a read from brokers uses."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from difflib import get_close_matches

from .errors import BadOption
from .option_table import CLIENT, NO_MEANING

SERVERS = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
FILE = "clientConfigFile"
"""The option that names a client's properties file, and its name among the settings."""
FILE_SETTING = "kafkalog.client.config.file"
_log = logging.getLogger("pyspark_kafkalog")


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

    settings = file_setting(given)
    for name, text in given.items():
        if not name.startswith("kafka.") or name in (SERVERS, ISOLATION):
            continue
        setting = name.removeprefix("kafka.")
        if setting in CLIENT or setting in security_names():
            settings[setting] = text.strip()
        elif setting not in NO_MEANING:
            raise BadOption(f"option {name!r}: no such setting of a consumer; {_near(setting)}")
    try:
        config = ConsumerConfig(resolved(settings))
    except KafkalogError as error:
        raise BadOption(f"option 'kafka.*': {error}") from None
    try:
        parse_servers(servers, config.security_protocol)
    except KafkalogError as error:
        raise BadOption(f"option {SERVERS!r}: {error}") from None
    return tuple(sorted(settings.items()))


def security_names() -> set[str]:
    """The settings of TLS and logins, by Kafka's names."""
    from kafkalog.config.login import LoginSettings
    from kafkalog.config.ssl import SslSettings

    return {"security.protocol", *SslSettings.table, *LoginSettings.table}


def file_setting(given: Mapping[str, str]) -> dict[str, str]:
    """The option for a properties file, as a setting."""
    path = given.get(FILE.lower(), "").strip()
    return {FILE_SETTING: path} if path else {}


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for a client of this machine, with those of the file that they name.

    Raises: BadOption.
    """
    from kafkalog.config.client_file import read_client_file
    from kafkalog.errors import InvalidSetting

    own = dict(settings)
    if (path := own.pop(FILE_SETTING, None)) is None:
        return own
    try:
        return read_client_file(path, f"option {FILE!r}", _log.warning) | own
    except InvalidSetting as error:
        raise BadOption(f"{error} (on {socket.gethostname()})") from None


def _near(setting: str) -> str:
    near = get_close_matches(setting, [*CLIENT, *NO_MEANING], n=1, cutoff=0.6)
    return f"did you mean kafka.{near[0]}?" if near else f"known: {', '.join(CLIENT)}"
