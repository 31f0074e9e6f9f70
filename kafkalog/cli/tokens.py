"""`kafkalog tokens`: delegation tokens, with which clients log in as their owners."""

import argparse
import base64
import binascii
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line, repeated, show_time, table
from kafkalog.cli.remote import action_of, add_actions, add_bootstrap, open_admin, say

if TYPE_CHECKING:
    from kafkalog.client.calls.tokens import DelegationToken

EXAMPLES = """\
example:
  kafkalog tokens create --renewer User:bob --bootstrap-server localhost:9093
  kafkalog tokens list --owner User:alice --bootstrap-server localhost:9093
  kafkalog tokens renew --hmac-file token.txt --bootstrap-server localhost:9093
  kafkalog tokens expire --hmac-file token.txt --bootstrap-server localhost:9093
"""

ACTIONS = {
    "list": "show tokens, without their passwords (the default)",
    "create": "create a token; prints its id and its password",
    "renew": "let a token expire later",
    "expire": "let a token expire earlier, or at once",
}
OPTIONS = {
    "renewer": ("create",),
    "max_life_time_period": ("create",),
    "hmac_file": ("renew", "expire"),
    "period": ("renew", "expire"),
    "json": ("list", "create"),
}
"""The options that belong to some actions only."""
DEFAULT = "list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "OWNER")
    repeated(
        parser,
        "--owner",
        metavar="PRINCIPAL",
        help="list: only tokens of this principal, such as User:alice; create: for it (default: "
        "the caller)",
    )
    repeated(parser, "--renewer", metavar="PRINCIPAL", help="create: it may renew the token")
    parser.add_argument(
        "--max-life-time-period",
        type=int,
        default=-1,
        metavar="MS",
        help="create: how long the token can be renewed (default: the broker's maximum)",
    )
    parser.add_argument(
        "--hmac-file",
        metavar="FILE",
        help="renew, expire: the file whose first line is the token's password, - for stdin",
    )
    parser.add_argument(
        "--period",
        type=int,
        default=-1,
        metavar="MS",
        help="renew: expire this long from now (default: the broker's setting); expire: the same "
        "(default: at once)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per token")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    owners = [*words, *options.owner]
    if action in ("renew", "expire"):
        return _change(options, action, owners)
    if action == "create" and len(owners) > 1:
        raise UsageError(f"create: found {len(owners)} owners, wanted one at most")
    with open_admin(options) as admin:
        if action == "list":
            _print(options, admin.describe_delegation_tokens(owners or None))
            return 0
        made = admin.create_delegation_token(
            options.renewer,
            owner=owners[0] if owners else None,
            max_lifetime_ms=options.max_life_time_period,
        )
    if options.json:
        print(json_line({**_row(made), "password": made.password}))
    else:
        say(f"{made.token_id}: {made.password}")
    return 0


def _change(options: argparse.Namespace, action: str, owners: list[str]) -> int:
    from kafkalog.cli.users import first_line

    if owners or options.hmac_file is None:
        raise UsageError(f"{action}: wanted --hmac-file, and no owner")
    try:
        hmac = base64.b64decode(first_line(options.hmac_file), validate=True)
    except binascii.Error:
        raise UsageError("--hmac-file: wanted a token's password, in base64") from None
    with open_admin(options) as admin:
        change = (
            admin.renew_delegation_token if action == "renew" else admin.expire_delegation_token
        )
        say(f"expires at {show_time(change(hmac, options.period))}")
    return 0


def _print(options: argparse.Namespace, tokens: "list[DelegationToken]") -> None:
    if options.json:
        for one in tokens:
            print(json_line(_row(one)))
    elif tokens:
        cells = [
            [one.token_id, one.owner, one.requester, ",".join(one.renewers),
             show_time(one.expiry_ms), show_time(one.max_ms)]
            for one in tokens
        ]  # fmt: skip
        heads = ["token", "owner", "requester", "renewers", "expires", "at the latest"]
        print(table(heads, cells, left=frozenset(range(len(heads)))))
    else:
        print("there is no token")


def _row(one: "DelegationToken") -> dict[str, object]:
    return {
        "token": one.token_id, "owner": one.owner, "requester": one.requester,
        "renewers": one.renewers, "issue_ms": one.issue_ms, "expiry_ms": one.expiry_ms,
        "max_ms": one.max_ms,
    }  # fmt: skip
