"""docs/settings.md, rendered from the declarations."""

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.declare import Settings, Whole
from kafkalog.config.server import DYNAMIC, ServerConfig
from kafkalog.config.topic import TopicConfig

__all__ = ["render_differences", "render_markdown"]

_WHY = {
    "group.consumer.assignment.interval.ms": "A small group is assigned at once, a large one waits "
    "for as long as its size asks for.",
    "num.recovery.threads.per.data.dir": "Logs are opened when they are first used, "
    "and flushes run in threads of their own.",
    "queued.max.request.bytes": "Limits what clients can send.",
    "retention.ms": "Nothing is deleted unless a setting says so.",
    "socket.receive.buffer.bytes": "The system adapts it to the connection.",
    "socket.send.buffer.bytes": "The system adapts it to the connection.",
    "socket.listen.backlog.size": "Many clients that reconnect at the same time "
    "wait instead of failing.",
}
"""Why a default differs from Kafka's."""


def render_markdown() -> str:
    """docs/settings.md: the settings of topics, of data directories and of brokers."""
    topics = {setting.synonym for setting in TopicConfig.table.values()}
    lines = [
        "",
        "## Server settings",
        "",
        "Taken by `kafkalog.Broker(config={...})` and `kafkalog serve`, which take all of the",
        "above as well.",
        "",
        *_table(ServerConfig, False, without=BrokerConfig),
        "",
        "`listener.name.NAME.` before a name that begins with `sasl.` or `ssl.`, or before",
        "`connections.max.reauth.ms`, sets it for one listener; `listener.name.NAME.MECHANISM.`",
        "sets it for one SASL mechanism of that listener.",
        "",
        "A broker with a setting that restricts access and is not above does not start: other",
        "names that begin with `sasl.`, `ssl.` or `authorizer.`, policies, a principal builder.",
        "Values that restrict nothing (Kafka's defaults, empty ones) are ignored, with a note.",
        "",
        "## Changing them at run time",
        "",
        "AlterConfigs and IncrementalAlterConfigs of a broker, or of all (the empty name), change",
        "the defaults of topics and:",
        "",
        *(f"* `{name}`" for name in sorted(DYNAMIC - topics)),
        "",
        "They are kept in the metadata, so they survive a restart. A lower connection limit closes",
        "no open connection. Other settings above are refused with INVALID_REQUEST, as are those",
        "that Kafka cannot change either; `listeners` and `advertised.listeners` are among",
        "them here, and not in Kafka. One change at most halves or doubles a count of",
        "threads, as in Kafka; a network thread that stops passes its connections to the others,",
        "where Kafka closes them. A name that is not above",
        "(`background.threads`, `log.cleaner.threads`, `num.replica.fetchers`, or one that Kafka",
        "does not know) is kept in the metadata and has no effect, as Kafka keeps what it does not",
        "know.",
        "",
    ]
    return _topics_and_directory() + "\n".join(lines)


def render_differences() -> str:
    """A section of docs/compatibility.md: the defaults that differ from Kafka's, and why.

    tests/kafka/referee/test_settings.py compares all others with Kafka's.
    """
    lines = [
        "",
        "## Defaults that are not Kafka's",
        "",
        "A broker's settings. All others that Kafka knows have the defaults of Kafka 4.4.0.",
        "Names that begin with `kafkalog.` are our own.",
        "",
        "| setting | here | Apache Kafka 4.4.0 | why |",
        "| --- | --- | --- | --- |",
    ]
    for setting in (*TopicConfig.table.values(), *ServerConfig.table.values()):
        if setting.kafka is not None:
            here, theirs = setting.show(setting.served), setting.show(setting.kafka)
            lines.append(f"| `{setting.name}` | `{here}` | `{theirs}` | {_WHY[setting.name]} |")
    lines += [
        "",
        "A bare `Log`, and a data directory without a broker, have these other defaults:",
        "",
        "| setting | bare | broker |",
        "| --- | --- | --- |",
    ]
    for setting in TopicConfig.table.values():
        if setting.served != setting.default:
            bare, broker = setting.show(setting.default), setting.show(setting.served)
            lines.append(f"| `{setting.name}` | `{bare}` | `{broker}` |")
    return "\n".join([*lines, ""])


def _topics_and_directory() -> str:
    return "\n".join(
        [
            "# Settings",
            "",
            "Rendered from `kafkalog/config/` by `make docs`; do not edit. Names, types and",
            "meanings are Kafka's; those that begin with `kafkalog.` are ours. Values are text, as",
            "in a properties file, or Python's own. An unknown name is refused with the nearest",
            "known one, a wrong value with what was wanted.",
            "",
            "Nothing is deleted unless a setting says so: `retention.ms` and `retention.bytes`",
            "have no limit until they are given (Kafka deletes after seven days).",
            "",
            "## Topic settings",
            "",
            "Taken by `Log(path, config={...})`, and per topic by a data directory. A data",
            "directory takes the broker's names, too: they give the defaults of all its topics.",
            "",
            *_table(TopicConfig, True),
            "",
            "## Broker settings",
            "",
            "Taken by a data directory.",
            "",
            *_table(BrokerConfig, False),
            "",
        ]
    )


def _table(
    scope: type[Settings], synonyms: bool, without: type[Settings] | None = None
) -> list[str]:
    """The lines of a table of all settings of `scope`, with or without their broker names.

    `without`: leave out settings that this scope already has.
    """
    heads = ["name", "type", "default", "valid", "unit", *(["broker's name"] if synonyms else [])]
    lines = ["| " + " | ".join([*heads, "what it does"]) + " |"]
    lines.append("| --- " * (len(heads) + 1) + "|")
    for setting in scope.table.values():
        if without is not None and setting.name in without.table:
            continue
        shown = setting.show(setting.default)
        default = f"`{shown}`" if shown else "empty"
        if setting.served != setting.default:
            default += f" (a broker: `{setting.show(setting.served)}`)"
        if setting.kafka is not None:
            default += f" (Kafka: `{setting.show(setting.kafka)}`)"
        valid = setting.range() if isinstance(setting, Whole) else setting.wanted()
        cells = [f"`{setting.name}`", setting.kind, default, valid, setting.unit or "-"]
        if synonyms:
            names = [setting.synonym, *setting.also] if setting.synonym else []
            cells.append(", ".join(f"`{name}`" for name in names) or "-")
        lines.append("| " + " | ".join([*cells, setting.text]) + " |")
    return lines
