"""A server.properties file: which settings apply, and what happened to the others."""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.config.listeners import own_setting
from kafkalog.config.properties import parse_properties
from kafkalog.config.protection import refuse_protections
from kafkalog.config.quorum import QUORUM
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting

__all__ = ["Properties", "read_properties", "sorted_out"]

_ONE_NODE = "ignored: without process.roles this is no node of a KRaft cluster"
_LATER = "ignored: it is not supported yet"
_NOBODY = "ignored: this value restricts nothing"
_UNTUNED = "ignored: the coordinator needs no tuning"
_UNTIERED = "ignored: kafkalog has no tiered storage"
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("controller.", _ONE_NODE),
    ("process.roles", _ONE_NODE),
    ("initial.broker.registration.", _ONE_NODE),
    ("broker.heartbeat.", _ONE_NODE),
    ("broker.session.", _ONE_NODE),
    ("metadata.log.", "ignored: the metadata log has no such part"),
    ("metadata.max.", "ignored: the metadata log has no such part"),
    ("zookeeper.", _LATER),
    ("replica.", _LATER),
    ("ssl.", _NOBODY),
    ("sasl.", _NOBODY),
    ("security.", _NOBODY),
    ("transaction.", _LATER),
    ("add.partitions.to.txn.", _UNTUNED),
    ("quota.", _LATER),
    ("client.quota.", _LATER),
    ("share.", _LATER),
    ("group.share.", _LATER),
    ("group.streams.", "ignored: no plugin or thread of Kafka's is configured"),
    ("group.coordinator.", _UNTUNED),
    ("remote.log.", _UNTIERED),
    ("metric", _LATER),
    ("kafka.metrics.", _LATER),
    ("auto.include.jmx.reporter", "ignored: there is no JMX"),
    ("confluent.", "ignored: it is not Apache Kafka's"),
    ("password.", _NOBODY),
)
"""The handling of Kafka's names that are not ours, by prefix."""
_REMOVED = "ignored: Kafka 4 has no such setting either"
_IGNORED = {
    "log.message.downconversion.enable": _REMOVED,
    "log.message.format.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": _REMOVED,
    "early.start.listeners": "ignored: the controllers' listeners always start first",
    "inter.broker.protocol.version": "ignored: a node of a cluster speaks that of 3.9",
    "background.threads": "ignored: the threads are kafkalog's own",
    "log.cleaner.threads": "ignored: one thread compacts",
    "num.replica.fetchers": "ignored: one thread copies from each leader",
    "num.replica.alter.log.dirs.threads": "ignored: there is one data directory",
    "unstable.api.versions.enable": _LATER,
    "unstable.feature.versions.enable": _LATER,
    "request.timeout.ms": _ONE_NODE,
    "reserved.broker.max.id": "ignored: node.id may be any number",
    "broker.id.generation.enable": "ignored: a new node of a cluster needs node.id; alone it is 1",
    "principal.builder.class": _NOBODY,
    "create.topic.policy.class.name": _NOBODY,
    "alter.config.policy.class.name": _NOBODY,
    "transaction.partition.verification.enable": "ignored: writes are always verified",
    "transaction.state.log.load.buffer.size": _UNTUNED,
    "fetch.purgatory.purge.interval.requests": "ignored: there is nothing to purge",
    "producer.purgatory.purge.interval.requests": "ignored: there is nothing to purge",
    "delete.records.purgatory.purge.interval.requests": "ignored: there is nothing to purge",
    "log.dir.failure.timeout.ms": "ignored: there is one data directory",
    "follower.fetch.last.tiered.offset.enable": _UNTIERED,
    "config.providers": "ignored: values are used as they are in the file",
    "node.rack": "ignored: broker.rack is the name",
}
"""The same, by full name."""


class Properties(NamedTuple):
    """A properties file, sorted out."""

    config: dict[str, object]
    """The settings that apply."""
    directories: tuple[str, ...]
    """Those of log.dirs, or log.dir."""
    notes: tuple[str, ...]
    """One sentence for each name that does not apply as it is."""

    @property
    def directory(self) -> str | None:
        """The directory of log.dirs; None: it names none.

        Raises: InvalidSetting: it names several.  Partitions of the others would be missing, also
        if those are only not mounted now, and empty ones would take their place in a cluster.
        """
        if len(self.directories) > 1:
            found = f"{len(self.directories)} directories ({', '.join(self.directories)})"
            raise InvalidSetting(
                f"log.dirs: found {found}, wanted one with everything: move the folders of their "
                "partitions there, or their replicas to other nodes"
            )
        return next(iter(self.directories), None)


def read_properties(path: str) -> dict[str, str]:
    """The names and values of a file.

    Raises: OSError; UnicodeDecodeError never: a file is read as Java reads it.
    """
    with open(path, encoding="latin-1") as file:
        return parse_properties(file.read())


def sorted_out(found: Mapping[str, str]) -> Properties:
    """Sort the settings `found` into those that apply and notes about the others.

    Raises: InvalidSetting for one that restricts access: nobody may believe that it works.
    """
    known = set(ServerConfig.names())
    config: dict[str, object] = {}
    notes: list[str] = []
    joins = _joins_quorum(found)
    others = set() if joins else _controllers(found)
    refuse_protections(
        {name: value for name, value in found.items()
         if _listener_of(name) not in others and name not in ("zookeeper.connect", "process.roles")}
    )  # fmt: skip
    for name, value in found.items():
        if _listener_of(name) in others:
            notes.append(f"{name}: {_ONE_NODE}")
        elif name in QUORUM and not joins:
            notes.append(f"{name}: {_done(name, set())}")
        elif name in known or own_setting(name) is not None:
            config[name] = value
        elif name == "broker.id":
            config.setdefault("node.id", value)
        elif name not in ("log.dirs", "log.dir"):
            notes.append(f"{name}: {_done(name, known)}")
    if not joins:
        notes += _without_controllers(config, found)
    return Properties(config, _directories(found), tuple(notes))


def _done(name: str, known: set[str]) -> str:
    if name in _IGNORED:
        return _IGNORED[name]
    for begin, done in _FAMILIES:
        if name.startswith(begin):
            return done
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.7)
    return "ignored: no setting has this name" + (f"; the nearest is {near[0]}" if near else "")


def _joins_quorum(found: Mapping[str, str]) -> bool:
    """True if process.roles names a role."""
    return bool(found.get("process.roles", "").strip(" ,"))


def _controllers(found: Mapping[str, str]) -> set[str]:
    """The controllers' listeners, which files of KRaft have."""
    names = found.get("controller.listener.names", "").split(",")
    return {name.strip().upper() for name in names} - {""}


def _listener_of(name: str) -> str | None:
    own = own_setting(name)
    return None if own is None else own.listener


def _without_controllers(config: dict[str, object], found: Mapping[str, str]) -> list[str]:
    """Remove the controller's listeners."""
    names = _controllers(found)
    notes = []
    for setting in ("listeners", "advertised.listeners"):
        words = [word.strip() for word in str(config.get(setting, "")).split(",") if word.strip()]
        gone = [word for word in words if word.partition("://")[0].upper() in names]
        if gone:
            config[setting] = ",".join(word for word in words if word not in gone)
            notes.append(f"{setting}: left out {', '.join(gone)}: one node needs no controller's")
    return notes


def _directories(found: Mapping[str, str]) -> tuple[str, ...]:
    words = (word.strip() for word in found.get("log.dirs", found.get("log.dir", "")).split(","))
    return tuple(word for word in words if word)
