"""Records about ACLs, SCRAM credentials, quotas and tokens, as changes of znodes.

Pure.  The rules of kafkalog.controller plan the records; here each znode gets its part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog.errors import InvalidRequest
from kafkalog.metadata.changes import acl_of, token_of
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.security.acls import Acl
from kafkalog.security.scram import Credential, Mechanism
from kafkalog.security.tokens import Token
from kafkalog.zookeeper import acls, entities, users
from kafkalog.zookeeper.acls import Resource
from kafkalog.zookeeper.altering import entity_operations
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Operation

__all__ = ["Changes", "changes_of", "planned_on", "settings_operations"]

LEVEL = 21
"""The metadata.version, 3.9-IV0, that has what a cluster on ZooKeeper has."""


class Changes(NamedTuple):
    """The changes of znodes."""

    acls: Mapping[Resource, Mapping[Acl, bool]]
    """True: the ACL is added; False: it is removed."""
    settings: Mapping[entities.Entity, Mapping[str, str | None]]
    """None: the setting is removed."""
    tokens: Mapping[str, Token | None] = {}
    """By id; None: the token is removed."""


def planned_on(image: MetadataImage) -> MetadataImage:
    """The image as the rules expect it: with the level of Kafka's last version on ZooKeeper."""
    return image._replace(features={METADATA_VERSION: LEVEL})


def changes_of(image: MetadataImage, records: Iterable[tuple[str, Any]]) -> Changes:
    """The changes that records make; `image`: the one that they were planned on.

    Raises: InvalidRequest: an ACL, a user or a client that the tree cannot hold.
    """
    rules: dict[Resource, dict[Acl, bool]] = {}
    settings: dict[entities.Entity, dict[str, str | None]] = {}
    tokens: dict[str, Token | None] = {}
    for name, fields in records:
        if name == "AccessControlEntryRecord":
            acl = acl_of(fields)
            acls.check_resource(acl)
            rules.setdefault(Resource.of(acl), {})[acl] = True
        elif name == "RemoveAccessControlEntryRecord":
            acl = image.acls[fields["id"]]
            rules.setdefault(Resource.of(acl), {})[acl] = False
        elif name == "DelegationTokenRecord":
            tokens[fields["token_id"]] = token_of(fields)
        elif name == "RemoveDelegationTokenRecord":
            tokens[fields["token_id"]] = None
        else:
            entity, key, value = _SETTINGS[name](fields)
            _check_entity(entity)
            settings.setdefault(entity, {})[key] = value
    return Changes(rules, settings, tokens)


def _check_entity(entity: entities.Entity) -> None:
    """Raises: InvalidRequest."""
    for kind, name in zip(entity[::2], entity[1::2], strict=True):
        if name in entities.RELATIVE:
            raise InvalidRequest(
                f"{entities.QUOTAS[kind]}: found {name!r}, which ZooKeeper cannot store; wanted "
                "another name"
            )


_Setting = tuple[entities.Entity, str, str | None]


def _credential(fields: Mapping[str, Any]) -> _Setting:
    credential = Credential(*(fields[name] for name in Credential._fields))
    mechanism = Mechanism(fields["mechanism"]).sasl_name
    return users.entity_of_user(fields["name"]), mechanism, users.write_credential(credential)


def _no_credential(fields: Mapping[str, Any]) -> _Setting:
    return users.entity_of_user(fields["name"]), Mechanism(fields["mechanism"]).sasl_name, None


def _quota(fields: Mapping[str, Any]) -> _Setting:
    pairs = ((one["entity_type"], one["entity_name"]) for one in fields["entity"])
    key, value = fields["key"], fields.get("value")
    text = None if fields.get("remove") or value is None else users.quota_text(key, value)
    return users.entity_of_quota(pairs), key, text


_SETTINGS = {
    "UserScramCredentialRecord": _credential,
    "RemoveUserScramCredentialRecord": _no_credential,
    "ClientQuotaRecord": _quota,
}


def settings_operations(
    entity: entities.Entity, znode: Znode | None, changes: Mapping[str, str | None]
) -> tuple[Operation, ...]:
    """Changes the settings of a user, a client or an address, if the znode is as it was read, and
    announces it; empty if nothing changes.

    Raises: BadZnode: its settings are unreadable, and would be lost.
    """
    known = users.settings_of(entity, None if znode is None else znode.data)
    settings = {**known, **changes}
    left = {name: value for name, value in settings.items() if value is not None}
    return () if left == known else entity_operations(entity, znode, left)
