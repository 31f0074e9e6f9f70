"""`kafkalog acls`: shows, adds and removes permissions, as Kafka's tool does."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line, repeated, table
from kafkalog.cli.remote import action_of, add_actions, add_bootstrap, open_admin, say

if TYPE_CHECKING:
    from kafkalog.client.calls.acls import AclBinding

EXAMPLES = """\
example:
  kafkalog acls --bootstrap-server localhost:9092
  kafkalog acls add --allow-principal User:alice --operation read --topic orders \\
    --bootstrap-server localhost:9092
  kafkalog acls add --allow-principal User:bob --consumer --topic orders --group app \\
    --bootstrap-server localhost:9092
  kafkalog acls remove --topic orders --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "show permissions (the default action)",
    "add": "add permissions",
    "remove": "remove permissions: those named, or without a principal all of the resources",
}
DEFAULT = "list"
CLUSTER = "kafka-cluster"
_KINDS = {
    "topic": "topic", "group": "group", "transactional_id": "transactional_id",
    "delegation_token": "delegation_token", "user_principal": "user",
}  # fmt: skip
_PRODUCER = {
    "topic": ("write", "describe", "create"), "transactional_id": ("write", "describe"),
}  # fmt: skip
_CONSUMER = {"topic": ("read", "describe"), "group": ("read",)}
_OF_CHANGES = ("allow_principal", "deny_principal", "allow_host", "deny_host", "operation")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "RESOURCE")
    parser.add_argument(
        "--cluster", nargs="?", const=CLUSTER, choices=(CLUSTER,), help="the cluster itself"
    )
    for name, what in (
        ("topic", "a topic, * for all"), ("group", "a consumer group, * for all"),
        ("transactional-id", "a transactional id, * for all"),
        ("delegation-token", "a delegation token"), ("user-principal", "a user, as User:alice"),
    ):  # fmt: skip
        repeated(parser, f"--{name}", metavar="NAME", help=f"the resource: {what}")
    parser.add_argument(
        "--resource-pattern-type",
        default=None,
        metavar="TYPE",
        help="literal (default), prefixed: resources whose names begin so; list, remove: also any, "
        "or match: what applies to the resource",
    )
    repeated(parser, "--allow-principal", metavar="TYPE:NAME", help="add, remove: is allowed")
    repeated(parser, "--deny-principal", metavar="TYPE:NAME", help="add, remove: is denied")
    repeated(parser, "--principal", metavar="TYPE:NAME", help="list: only those of principals")
    repeated(parser, "--allow-host", metavar="HOST", help="of those allowed (default: *, all)")
    repeated(parser, "--deny-host", metavar="HOST", help="of those denied (default: *, all)")
    repeated(
        parser, "--operation", metavar="OPERATION",
        help="read, write, create, delete, alter, describe, cluster-action, describe-configs, "
        "alter-configs, idempotent-write, create-tokens, describe-tokens, all (default)",
    )  # fmt: skip
    parser.add_argument("--producer", action="store_true", help="what a producer to --topic needs")
    parser.add_argument(
        "--consumer", action="store_true", help="what a consumer of --topic and --group needs"
    )
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: also idempotent writes"
    )
    parser.add_argument("--force", action="store_true", help="accepted: nothing is asked for")
    parser.add_argument("--json", action="store_true", help="list: one JSON object per permission")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    if words:
        raise UsageError(f"{action}: found {words[0]!r}; give resources as --topic NAME and so on")
    if action == "list":
        _list(options)
    elif action == "add":
        _add(options)
    else:
        _remove(options)
    return 0


def _resources(options: argparse.Namespace) -> list[tuple[str, str]]:
    """(Type, name) of those that the options name."""
    found = [(kind, name) for option, kind in _KINDS.items() for name in getattr(options, option)]
    return [*found, *([("cluster", options.cluster)] if options.cluster else [])]


def _list(options: argparse.Namespace) -> None:
    from kafkalog.client.calls.acls import AclBinding, AclBindingFilter

    for name in _OF_CHANGES:
        if getattr(options, name):
            raise UsageError(f"list: --{name.replace('_', '-')} is for add and remove")
    pattern = options.resource_pattern_type or ("literal" if _resources(options) else "any")
    resources: list[tuple[str, str | None]] = [*_resources(options)] or [("any", None)]
    filters = [
        AclBindingFilter(kind, name, principal, pattern=pattern)
        for kind, name in resources
        for principal in options.principal or [None]
    ]
    with open_admin(options) as admin:
        found = sorted({one for each in filters for one in admin.describe_acls(each)})
    if options.json:
        for one in found:
            print(json_line(one._asdict()))
    elif found:
        cells = [list(one) for one in found]
        head = [name.replace("_", " ") for name in AclBinding._fields]
        print(table(head, cells, left=frozenset(range(len(head)))))
    else:
        print("there are no such permissions")


def _entries(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """(Principal, permission, host)."""
    for permission in ("allow", "deny"):
        hosts = getattr(options, f"{permission}_host") or ["*"]
        for principal in getattr(options, f"{permission}_principal"):
            if ":" not in principal:
                raise UsageError(
                    f"--{permission}-principal: found {principal!r}, wanted type and name, as in "
                    "User:alice"
                )
            for host in hosts:
                yield principal, permission, host


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """(Type, name, operation)."""
    roles = [
        row for row, on in ((_PRODUCER, options.producer), (_CONSUMER, options.consumer)) if on
    ]
    if options.idempotent and not options.producer:
        raise UsageError("--idempotent: only with --producer")
    if roles and options.operation:
        raise UsageError("--operation: not with --producer and --consumer, which name theirs")
    if roles and not options.topic:
        raise UsageError("--producer, --consumer: which topic? give --topic")
    if options.consumer and not options.group:
        raise UsageError("--consumer: which group? give --group")
    for kind, name in _resources(options):
        for role in roles:
            for operation in role.get(kind, ()):
                yield kind, name, operation
        if not roles:
            for operation in options.operation or ["all"]:
                yield kind, name, operation
    if options.idempotent:
        yield "cluster", CLUSTER, "idempotent_write"


def _bindings(options: argparse.Namespace) -> "list[AclBinding]":
    from kafkalog.client.calls.acls import AclBinding

    pattern = options.resource_pattern_type or "literal"
    return list(dict.fromkeys(
        AclBinding(kind, name, principal, operation, permission, host,
                   "literal" if kind == "cluster" else pattern)
        for kind, name, operation in _wanted(options)
        for principal, permission, host in _entries(options)
    ))  # fmt: skip


def _shown(one: "AclBinding") -> str:
    like = "" if one.pattern == "literal" else f" ({one.pattern})"
    where = "" if one.host == "*" else f" from {one.host}"
    return (
        f"{one.principal}: {one.permission} {one.operation} on {one.resource_type} {one.name}{like}"
        f"{where}"
    )


def _add(options: argparse.Namespace) -> None:
    if not _resources(options):
        raise UsageError("add: to which resources? give --topic, --group, --cluster or another")
    bindings = _bindings(options)
    if not bindings:
        raise UsageError("add: for whom? give --allow-principal or --deny-principal")
    with open_admin(options) as admin:
        admin.create_acls(bindings).check()
    for one in bindings:
        say(f"added: {_shown(one)}")


def _remove(options: argparse.Namespace) -> None:
    from kafkalog.client.calls.acls import AclBindingFilter

    if not _resources(options):
        raise UsageError("remove: of which resources? give --topic, --group, --cluster or another")
    pattern = options.resource_pattern_type or "literal"
    if options.allow_principal or options.deny_principal:
        filters = [AclBindingFilter(*one) for one in _bindings(options)]
    elif options.operation:
        raise UsageError("remove: --operation needs --allow-principal or --deny-principal")
    else:
        filters = [AclBindingFilter(kind, name, pattern=pattern) for kind, name in
                   _resources(options)]  # fmt: skip
    with open_admin(options) as admin:
        gone = admin.delete_acls(filters).check()
    removed = sorted({one for each in gone.values() for one in each})
    for one in removed:
        say(f"removed: {_shown(one)}")
    if not removed:
        say("there are no such permissions")
