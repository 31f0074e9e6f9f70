"""A client's properties file, as Kafka's tools take it with `--command-config`."""

import re
from collections.abc import Callable, Mapping

from kafkalog.config.admin import AdminConfig
from kafkalog.config.client import ClientConfig
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.config.producer import ProducerConfig
from kafkalog.config.properties import parse_properties
from kafkalog.config.share_consumer import ShareConsumerConfig
from kafkalog.errors import InvalidSetting

__all__ = ["common_settings", "read_client_file"]

CHARS_MAX = 1 << 20
_KNOWN = frozenset({
    *ProducerConfig.table, *ConsumerConfig.table, *ShareConsumerConfig.table, *AdminConfig.table,
    "bootstrap.servers",
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
})  # fmt: skip
"""Settings of producers, consumers and administrators, and what is given in another way."""
_NO_MEANING = re.compile(
    r"sasl\.(kerberos\..+|login\.(refresh\.(window\.jitter|min\.period\.seconds|buffer\.seconds)"
    r"|connect\.timeout\.ms)|oauthbearer\.(jwks\..+|expected\..+|clock\.skew\.seconds"
    r"|(scope|sub)\.claim\.name))|ssl\.(keymanager|trustmanager)\.algorithm"
)
"""Settings of Java's libraries, of brokers, and of a mechanism that is refused itself."""


def read_client_file(path: str, name: str, warn: Callable[[str], object]) -> dict[str, str]:
    """The settings in a file that every client has; see `common_settings`.

    Raises: InvalidSetting; `name`: whose file it is, for the message.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(CHARS_MAX + 1)
    except OSError as problem:
        raise InvalidSetting(f"{name}: {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(f"{name}: {path}: found other than UTF-8, wanted properties") from None
    if len(text) > CHARS_MAX:
        raise InvalidSetting(f"{name}: {path}: found more than {CHARS_MAX} characters")
    return common_settings(parse_properties(text), f"{name}: {path}", warn)


def common_settings(
    found: Mapping[str, str], where: str, warn: Callable[[str], object]
) -> dict[str, str]:
    """Those of these settings that every client has; `warn` gets the name of an unknown one.

    Raises: InvalidSetting: one about security is unknown.
    """
    for name in found:
        if name in _KNOWN or _NO_MEANING.fullmatch(name):
            continue
        if name.startswith(("security.", "ssl.", "sasl.")):
            raise InvalidSetting(f"{where}: {name} is not supported")
        warn(f"{where}: {name} is not known, and ignored")
    return {name: value for name, value in found.items() if name in ClientConfig.table}
