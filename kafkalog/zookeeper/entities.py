"""Settings in the tree: of topics, brokers, users, clients and addresses, and their announcements.

Pure, as `tree`.  An entity is the path below /config: ("topics", "t"), ("users", "u", "clients",
"c"); names of users and clients are sanitized in it, and `<default>` means all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from kafkalog.errors import BadZnode
from kafkalog.zookeeper.documents import Document, document

__all__ = [
    "CHANGE", "CHANGES", "CHANGE_PREFIX", "CONFIG", "DEFAULT", "KINDS", "RELATIVE", "Entity",
    "config_path", "quota_entity",
    "read_change", "read_config", "sanitized", "unsanitized", "write_change", "write_config",
]  # fmt: skip

CONFIG, CHANGES = "/config", "/config/changes"
CHANGE_PREFIX = "config_change_"
CHANGE = f"{CHANGES}/{CHANGE_PREFIX}"
DEFAULT = "<default>"
RELATIVE = (".", "..")
"""Names that no znode can have, and that `sanitized` leaves as they are."""
KINDS = ("topics", "brokers", "clients", "users", "ips")
QUOTAS = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The kinds of entity that quotas have, by Kafka's words on the wire."""

Entity = tuple[str, ...]


def config_path(entity: Entity) -> str:
    """The path of an entity's settings."""
    return "/".join((CONFIG, *entity))


def sanitized(name: str | None) -> str:
    """The name of a user or a client in a path; None: all of them."""
    if name is None:
        return DEFAULT
    return quote(name, safe="").replace("~", "%7E")  # like Java's encoder, which encodes the tilde


def unsanitized(name: str) -> str | None:
    """The reverse of `sanitized`."""
    return None if name == DEFAULT else unquote(name)


def read_config(entity: Entity, data: bytes | None) -> Mapping[str, str]:
    """Settings by name; a znode without data has none, such as that of a user with clients only."""
    if not data:
        return {}
    return Document.parse(config_path(entity), data, range(1, 2)).settings("config")


def write_config(settings: Mapping[str, str]) -> bytes:
    """Settings, version 1."""
    return document({"version": 1, "config": dict(settings)})


def read_change(path: str, data: bytes | None) -> Entity:
    """/config/changes/config_change_N, version 1 or 2: the entity whose settings changed."""
    found = Document.parse(path, data, range(1, 3))
    if not found.has("entity_path"):  # version 1, from before users had clients
        entity: Entity = (found.text("entity_type"), found.text("entity_name"))
    else:
        entity = tuple(found.text("entity_path").split("/"))
    if not _is_entity(entity):
        raise BadZnode(f"{path}: found {'/'.join(entity)!r:.80}, wanted one of {', '.join(KINDS)}")
    return entity


def _is_entity(entity: Entity) -> bool:
    kinds, names = entity[::2], entity[1::2]
    if len(kinds) != len(names) or not all(names) or {*names} & {*RELATIVE}:
        return False
    return kinds == ("users", "clients") or (len(kinds) == 1 and kinds[0] in KINDS)


def write_change(entity: Entity) -> bytes:
    """/config/changes/config_change_N, version 2."""
    return document({"version": 2, "entity_path": "/".join(entity)})


def quota_entity(entity: Entity) -> tuple[tuple[str, str | None], ...]:
    """A quota's entity as the wire has it, sorted: (("client-id", None), ("user", "u"))."""
    pairs = zip(entity[::2], entity[1::2], strict=True)
    return tuple(sorted((QUOTAS[kind], unsanitized(name)) for kind, name in pairs))
