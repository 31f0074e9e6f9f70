"""Settings, ACLs, SCRAM credentials, quotas, delegation tokens and features: requests whose changes
are planned on the image.

Steps, as defined in kafkalog.controller.active.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any

from kafkalog.controller import protection, tokens
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.settings import each
from kafkalog.disk.layout import random_topic_id, uuid_text
from kafkalog.kraft.features import Ranges, update_features
from kafkalog.metadata import configs, translation
from kafkalog.metadata.image import BROKER, MetadataImage
from kafkalog.metadata.levels import KRAFT_VERSION
from kafkalog.metadata.requests import ResourceChange, SettingChanges
from kafkalog.quorum.sessions import Committed
from kafkalog.quorum.topics import clear_eligible
from kafkalog.quorum.writing import ChangeKraftVersion, MetadataRecord, MetadataRecords
from kafkalog.security.principal import ANONYMOUS, Principal
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "PROTECTING", "alter_features", "alter_settings", "create_token", "expire_token",
    "expire_tokens", "protect", "renew_token", "replace_settings",
]  # fmt: skip

Body = dict[str, Any]
NO_TIME = -1
NODE_DIGITS = 10
"""Those of the largest number of a node."""


# ---- settings ----------------------------------------------------------------------------------


def replace_settings(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """AlterConfigs: all settings of a resource."""
    asked = request if isinstance(request, SettingChanges) else translation.all_settings(request)
    return (yield from _settings(store, active, asked, configs.alter_configs))


def alter_settings(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """IncrementalAlterConfigs."""
    asked = request if isinstance(request, SettingChanges) else translation.some_settings(request)
    return (yield from _settings(store, active, asked, configs.incremental_alter_configs))


def _settings(store: Committed, active: Active, asked: SettingChanges, plan: Any) -> Steps[Body]:
    image, config = store.image, active.options.config
    records: list[MetadataRecord] = []
    results: list[Body] = []
    for one in each(asked):
        resource = one.resources[0]
        if (missing := _missing(image, resource)) is not None:
            results.append(missing)
            continue
        node = int(resource.name) if resource.kind == BROKER and resource.name else image.node_id
        made, (result, *_) = plan(image._replace(node_id=node), one, config)
        results.append(result)
        if not asked.validate_only and not result["error_code"]:
            records += made
            if resource.kind == BROKER and plan is configs.incremental_alter_configs:
                records += _again(image, resource, {fields["name"] for _, fields in made})
    yield MetadataRecords([*records, *clear_eligible(image, records)])
    return {"responses": results}


def _missing(image: MetadataImage, one: ResourceChange) -> Body | None:
    """The result for a node that never registered."""
    if one.kind != BROKER or not one.name:
        return None
    if one.name.isdecimal() and len(one.name) <= NODE_DIGITS:
        if int(one.name) in image.brokers or int(one.name) in image.controllers:
            return None
        code, why = ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {one.name} found."
    else:
        code = ErrorCode.INVALID_REQUEST
        why = f"Unable to parse broker name as a base 10 number: {one.name}"
    return {"error_code": code, "error_message": why, "resource_type": one.kind,
            "resource_name": one.name}  # fmt: skip


def _again(
    image: MetadataImage, one: ResourceChange, changed: set[str]
) -> Iterator[MetadataRecord]:
    """Settings of brokers that keep their values: a file that one of them names may be another."""
    found = image.config(one.kind, one.name)
    for change in one.changes:
        if change.name not in changed:
            fields = {"resource_type": one.kind, "resource_name": one.name, "name": change.name}
            yield "ConfigRecord", {**fields, "value": found.get(change.name)}


# ---- ACLs, credentials, quotas -------------------------------------------------------------------


def _is_address(text: str) -> bool:
    """True for an address: names are looked up by the server, not while others wait."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


PROTECTING: Mapping[int, Any] = {
    **protection.PROTECTION,
    apis.ALTER_CLIENT_QUOTAS.key: partial(protection.client_quotas, is_address=_is_address),
}
"""How each of these requests becomes a plan, by API key."""


def protect(key: int, store: Committed, active: Active, request: Any) -> Steps[Body]:
    """A request of PROTECTING, or what the server made of it."""
    asked = request if isinstance(request, protection.Asked) else PROTECTING[key](request)
    field, plan = asked
    records, results = plan(store.image)
    yield MetadataRecords(records)
    return {field: results}


# ---- delegation tokens ---------------------------------------------------------------------------


def _rules(store: Committed, active: Active) -> tokens.Rules:
    config = active.options.config
    return tokens.Rules(
        config["delegation.token.secret.key"], config["delegation.token.max.lifetime.ms"],
        config["delegation.token.expiry.time.ms"], store.wall_ms(active.now_ms),
    )  # fmt: skip


def _allowed(caller: Principal) -> bool:
    return caller != ANONYMOUS and not caller.by_token


def create_token(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """CreateDelegationToken: the broker has checked the right to create one for another owner."""
    caller = active.caller.principal
    owner = caller
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    if not _allowed(caller):
        return {
            "error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "principal_type": owner.type, "principal_name": owner.name,
            "token_requester_principal_type": caller.type,
            "token_requester_principal_name": caller.name, "issue_timestamp_ms": NO_TIME,
            "expiry_timestamp_ms": NO_TIME, "max_timestamp_ms": NO_TIME, "token_id": "",
            "hmac": b"",
        }  # fmt: skip
    renewers = [Principal(one.principal_type, one.principal_name) for one in request.renewers]
    new = uuid_text(random_topic_id())
    records, results = tokens.create_token(
        store.image, _rules(store, active), new, owner, caller, renewers, request.max_lifetime_ms
    )
    yield MetadataRecords(records)
    return results[0]


def renew_token(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """RenewDelegationToken."""
    period_ms = request.renew_period_ms
    return (yield from _retimed(store, active, request, tokens.renew_token, period_ms))


def expire_token(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """ExpireDelegationToken."""
    period_ms = request.expiry_time_period_ms
    return (yield from _retimed(store, active, request, tokens.expire_token, period_ms))


def _retimed(
    store: Committed, active: Active, request: Any, change: Any, period_ms: int
) -> Steps[Body]:
    caller = active.caller.principal
    if not _allowed(caller):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return {"error_code": error, "expiry_timestamp_ms": NO_TIME}
    rules = _rules(store, active)
    records, results = change(store.image, rules, caller, bytes(request.hmac), period_ms)
    yield MetadataRecords(records)
    result: Body = results[0]
    return result


def expire_tokens(store: Committed, active: Active) -> Steps[None]:
    """Remove the tokens that have expired."""
    records, _ = tokens.remove_expired(store.image, store.wall_ms(active.now_ms))
    yield MetadataRecords(records, atomic=False)


# ---- features ------------------------------------------------------------------------------------


def alter_features(store: Committed, active: Active, request: Any, version: int) -> Steps[Body]:
    """UpdateFeatures: every node must support the new levels.  kraft.version is changed by Raft,
    after the others are written."""
    asked = translation.features(request, version)
    raft = [one for one in asked.changes if one.name == KRAFT_VERSION]
    others = [one for one in asked.changes if one.name != KRAFT_VERSION]
    nodes = _supported(store.image)
    plan = update_features(
        store.image, asked._replace(changes=others), active.options.config, 0, nodes
    )
    yield MetadataRecords(plan.records)
    result = plan.results[0]
    if raft and not result["error_code"] and not asked.validate_only:
        code, why = yield ChangeKraftVersion(0, raft[-1].level)
        if code:
            result = {"error_code": int(code), "error_message": why}
    return translation.features_answer(result, request, version)


def _supported(image: MetadataImage) -> dict[str, Ranges]:
    """The features of the other nodes, by the names that messages have for these."""
    found: dict[str, Ranges] = {
        f"Broker {number}": {name: (low, high) for name, low, high in one.features}
        for number, one in sorted(image.brokers.items())
    }
    for number, one in sorted(image.controllers.items()):
        if number != image.node_id:
            found[f"Controller {number}"] = {
                each.name: (each.min_supported_version, each.max_supported_version)
                for each in one.features
            }
    return found
