"""docs/settings.md, rendered from the declarations."""

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.declare import Settings, Whole
from kafkalog.config.server import DYNAMIC, ServerConfig
from kafkalog.config.topic import TopicConfig

__all__ = ["render_differences", "render_markdown"]

_WHY = {
    "num.recovery.threads.per.data.dir": "A log is opened when it is first used, and what is "
    "flushed goes through threads of its own.",
    "queued.max.request.bytes": "What strangers send is bounded.",
    "retention.ms": "Nothing is deleted unless a setting says so.",
    "socket.receive.buffer.bytes": "The system adapts it to the connection.",
    "socket.send.buffer.bytes": "The system adapts it to the connection.",
    "socket.listen.backlog.size": "Many clients that come back at once wait, not fail.",
}
"""Why a default is not Kafka's."""


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
        "What protects is not there yet and ends the start: `authorizer.*`, `super.users`,",
        "`sasl.*`, `ssl.*`, `security.inter.broker.protocol`, policies, a principal builder, any",
        "listener that is not PLAINTEXT, and metadata with ACLs, SCRAM credentials, tokens.",
        "Values that keep nobody out (Kafka's defaults, empty ones) are passed over, with a word.",
        "",
        "## Changing them at run time",
        "",
        "AlterConfigs and IncrementalAlterConfigs of a broker, or of all (the empty name), change",
        "the defaults of topics and:",
        "",
        *(f"* `{name}`" for name in sorted(DYNAMIC - topics)),
        "",
        "They are in the metadata, and so hold after a restart. Lower limits of connections close",
        "none that is there. The other settings above are answered with INVALID_REQUEST, as those",
        "are that Kafka cannot change either; `listeners` and `advertised.listeners` are among",
        "them here, and not in Kafka. Counts of threads are halved or doubled at most by one",
        "change, as in Kafka; a network thread that goes gives its connections to the others,",
        "where Kafka closes them. A name that is not above",
        "(`background.threads`, `log.cleaner.threads`, `num.replica.fetchers`, or one that Kafka",
        "does not know) is kept in the metadata and has no effect, as Kafka keeps what it does not",
        "know.",
        "",
    ]
    return _topics_and_directory() + "\n".join(lines)


def render_differences() -> str:
    """A section of docs/compatibility.md: which defaults are not Kafka's, and why.

    tests/kafka/referee/test_settings.py asks Kafka for all others.
    """
    lines = [
        "",
        "## Defaults that are not Kafka's",
        "",
        "Of a broker; all its other settings that Kafka knows have the defaults of Kafka 4.4.0.",
        "What only we have begins with `kafkalog.`.",
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
        "A bare `Log`, and a data directory that nobody serves, differ from a broker in:",
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
    """The lines of a table of all settings of `scope`, with their broker names or without.

    `without`: leave out what this scope has already.
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
