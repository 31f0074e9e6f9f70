"""A broker's settings of its console."""

from __future__ import annotations

from kafkalog.config.declare import Flag, Settings, Word, Words

__all__ = ["ConsoleSettings"]


class ConsoleSettings(Settings):
    """Settings of the console in the browser; all are ours."""

    kafkalog_console_enable = Flag(
        False,
        "Serve the console for browsers at kafkalog.http.listen, too (docs/console.md). Needs "
        "`kafkalog[console]`.",
    )
    kafkalog_console_write = Flag(
        False,
        "Let users of the console also produce messages, create and delete topics, and move "
        "groups, as far as their own rights allow it.",
    )
    kafkalog_console_hosts = Words(
        (),
        "Host names in the console's URL, besides localhost and addresses; others are refused, as "
        "another site's name may have been led here.",
        pattern=r"[A-Za-z0-9_.\-]+",
        example="host.example",
    )
    kafkalog_console_client_config = Word(
        "",
        "A properties file for the console's connections to this broker, such as "
        "ssl.truststore.location; security.protocol there chooses the listener. Empty: the first "
        "listener with logins (SASL), or else the first one, and no other settings.",
    )
    kafkalog_http_ssl_keystore_location = Word(
        "",
        "A PEM file with a private key and its certificates: kafkalog.http.listen then speaks "
        "TLS, for metrics and health, too. Only with the console. Empty: plain HTTP.",
    )
