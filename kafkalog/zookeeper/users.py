"""SCRAM credentials and quotas of clients, among the settings of users, clients and addresses.

Pure, as `entities`.  No error shows a value of a user's settings: it may be secret.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from kafkalog.controller.client_quotas import CONNECTION_RATE, CONSUMER_RATE, PRODUCER_RATE
from kafkalog.errors import ArgumentError, BadZnode
from kafkalog.security.scram import ITERATIONS_MIN, Credential, Mechanism
from kafkalog.zookeeper import entities

__all__ = [
    "Found", "credentials", "entity_of_quota", "entity_of_user", "quota_text", "read",
    "settings_of", "write_credential",
]  # fmt: skip

PREFIX = "SCRAM-"
"""Settings of users that begin so are credentials; the others are quotas."""
SALT_BYTES_MAX = 1024
_WHOLE = (PRODUCER_RATE, CONSUMER_RATE, CONNECTION_RATE)
"""Quotas that Kafka writes as whole numbers."""
_FRACTION = 1e-6
"""A value of a whole-number quota may be off by this."""
_KINDS = {word: kind for kind, word in entities.QUOTAS.items()}
INT32_MAX = (1 << 31) - 1


class Found(NamedTuple):
    """The contents of the settings of one entity."""

    credentials: Mapping[Mechanism, Credential]
    quotas: Mapping[str, float] | None
    """None: unreadable; those that were known before are to stay."""
    problems: tuple[BadZnode, ...]


def settings_of(entity: entities.Entity, data: bytes | None) -> Mapping[str, str]:
    """The settings of a user, a client or an address, by name.

    Raises: BadZnode, without any of its data.
    """
    try:
        return entities.read_config(entity, data)
    except BadZnode:
        raise BadZnode(
            f"{entities.config_path(entity)}: found no readable settings, wanted a JSON object of "
            'version 1 with strings in "config"'
        ) from None


def read(entity: entities.Entity, data: bytes | None) -> Found:
    """The credentials and quotas of an entity: what is unreadable lets nobody in."""
    try:
        settings = settings_of(entity, data)
    except BadZnode as problem:
        return Found({}, None, (problem,))
    credentials: dict[Mechanism, Credential] = {}
    quotas: dict[str, float] = {}
    problems: list[BadZnode] = []
    path = entities.config_path(entity)
    for name, text in settings.items():
        try:
            if name.startswith(PREFIX):
                mechanism, credential = read_credential(path, name, text)
                credentials[mechanism] = credential
            else:
                quotas[name] = _rate(entity, name, text)
        except BadZnode as problem:
            problems.append(problem)
    is_user = len(entity) == 2 and entity[0] == "users" and entity[1] != entities.DEFAULT
    if credentials and not is_user:
        problems.append(BadZnode(f"{path}: found SCRAM credentials, wanted them only for users"))
        credentials = {}
    return Found(credentials, quotas, tuple(problems))


def credentials(entity: entities.Entity, found: Found) -> dict[tuple[str, int], Credential]:
    """The credentials of an entity, as the metadata's image has them."""
    user = entities.unsanitized(entity[1])
    return {(user or "", int(one)): credential for one, credential in found.credentials.items()}


def read_credential(path: str, name: str, text: str) -> tuple[Mechanism, Credential]:
    """A credential, from the name and the value of its setting.

    Raises: BadZnode.
    """
    try:
        mechanism = Mechanism.named(name)
        pairs = [part.partition("=") for part in text.split(",")]
        fields = {key: value for key, _, value in pairs}
        if len(pairs) != 4 or fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError
        salt, stored, server = (base64.b64decode(fields[key], validate=True)
                                for key in ("salt", "stored_key", "server_key"))  # fmt: skip
        if len(fields["iterations"]) > 10 or not fields["iterations"].isdecimal():
            raise ValueError
        iterations = int(fields["iterations"])
        if (
            len(stored) != mechanism.key_bytes or len(server) != mechanism.key_bytes
            or len(salt) > SALT_BYTES_MAX
            or not ITERATIONS_MIN <= iterations <= INT32_MAX
        ):  # fmt: skip
            raise ValueError
    except (ArgumentError, ValueError, binascii.Error):
        raise BadZnode(
            f"{path}: {name:.80}: found no readable credential, wanted salt=…,stored_key=…,"
            "server_key=…,iterations=… of SCRAM-SHA-256 or SCRAM-SHA-512, and at least "
            f"{ITERATIONS_MIN} iterations"
        ) from None
    return mechanism, Credential(salt, stored, server, iterations)


def _rate(entity: entities.Entity, name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found <= 0:
        shown = "a value" if entity[0] == "users" and len(entity) == 2 else f"{text!r:.80}"
        path = entities.config_path(entity)
        raise BadZnode(f"{path}: {name:.80}: found {shown}, wanted a number above 0")
    return found


# ---- written -----------------------------------------------------------------------------------


def write_credential(credential: Credential) -> str:
    """The value of the setting that is named as the mechanism."""
    parts = credential.salt, credential.stored_key, credential.server_key
    salt, stored, server = (base64.b64encode(part).decode() for part in parts)
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def quota_text(name: str, value: float) -> str:
    """The value of a quota's setting, as Java writes such a number."""
    if name in _WHOLE:
        return str(int(value + _FRACTION))
    if not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)).replace("inf", "Infinity")
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    power = exponent + len(rest)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{power}"


def entity_of_user(user: str) -> entities.Entity:
    """The entity with a user's credentials."""
    return "users", entities.sanitized(user)


def entity_of_quota(pairs: Iterable[tuple[str, str | None]]) -> entities.Entity:
    """The entity of a quota whose types and names are these: ("user", "u"), ("client-id", None)."""
    kinds = {_KINDS[word]: name for word, name in pairs}
    order = ("users", "clients", "ips")
    found = [(kind, entities.sanitized(kinds[kind])) for kind in order if kind in kinds]
    return tuple(part for pair in found for part in pair)
