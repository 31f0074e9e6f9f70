"""The parts of a node's server.properties that its directories and its place in the metadata quorum
depend on."""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.cli.common import UsageError
from kafkalog.config.server_properties import read_properties

__all__ = ["NodeFile", "read_node_file"]

LISTENERS = ("advertised.listeners", "listeners")
"""The settings with a listener's address, in the order of preference."""
NODE_ID_MAX = (1 << 31) - 1


class NodeFile(NamedTuple):
    """The settings of such a file."""

    path: str
    node_id: int
    roles: tuple[str, ...]
    directories: tuple[str, ...]
    """All of them, sorted, without repetitions."""
    metadata_directory: str
    """That of the metadata log: one of `directories`."""
    voters: str
    """controller.quorum.voters; empty: not given."""
    settings: Mapping[str, str]

    @property
    def is_controller(self) -> bool:
        """True if process.roles has the role."""
        return "controller" in self.roles

    def endpoints(self) -> list[tuple[str, str, int]]:
        """The name, host and port of each listener of controllers, as others reach it.

        Raises: UsageError.
        """
        names = _words(self.settings.get("controller.listener.names", ""))
        if not names:
            raise UsageError(f"{self.path}: controller.listener.names: found none, wanted a name")
        return [self._endpoint(name.upper()) for name in names]

    def _endpoint(self, name: str) -> tuple[str, str, int]:
        from kafkalog.server.network.listeners import parse_listener

        for setting in LISTENERS:
            for text in _words(self.settings.get(setting, "")):
                found = parse_listener(text, setting)
                if found.name == name and not found.host.startswith("unix:"):
                    return name, found.host or "localhost", found.port
        raise UsageError(f"{self.path}: listeners: found no {name}://host:port, which "
                         "controller.listener.names has")  # fmt: skip


def read_node_file(path: str) -> NodeFile:
    """Those parts of a KRaft node's file.

    Raises: UsageError: it is not of such a node; OSError.
    """
    found = read_properties(path)
    roles = tuple(_words(found.get("process.roles", "")))
    if not roles:
        raise UsageError(f"{path}: process.roles: found none, wanted broker or controller, or both")
    number = found.get("node.id", found.get("broker.id", "")).strip()
    if not number.isdecimal() or int(number) > NODE_ID_MAX:
        raise UsageError(f"{path}: node.id: found {number!r}, wanted a node's number")
    logs = _words(found.get("log.dirs") or found.get("log.dir", ""))
    if not logs:
        raise UsageError(f"{path}: log.dirs: found none, wanted a directory")
    metadata = found.get("metadata.log.dir", "").strip() or logs[0]
    every = tuple(sorted({*logs, metadata}))
    voters = found.get("controller.quorum.voters", "").strip()
    return NodeFile(path, int(number), roles, every, metadata, voters, found)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
