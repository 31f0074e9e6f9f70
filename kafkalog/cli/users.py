"""`kafkalog users`: the SCRAM credentials with which users log in."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kafkalog.cli.common import CommandError, UsageError, json_line, repeated, table
from kafkalog.cli.remote import action_of, add_actions, add_backend, open_admin, say

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.users import (
        ScramCredentialInfo,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from kafkalog.directory.manager import Manager
    from kafkalog.kraft.kraftlog import MetadataLog

    Change = UserScramCredentialUpsertion | UserScramCredentialDeletion

EXAMPLES = """\
example:
  kafkalog users add alice --bootstrap-server localhost:9092
  kafkalog users add alice --mechanism SCRAM-SHA-256 --password-file secret.txt --dir data
  kafkalog users list --bootstrap-server localhost:9092
  kafkalog users delete alice --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "show users, and the mechanisms and iterations of their credentials (the default)",
    "add": "add a user's credential or replace it: a new password",
    "delete": "delete users' credentials",
}
OPTIONS = {
    "mechanism": ("add", "delete"),
    "iterations": ("add",),
    "password_file": ("add",),
    "add_scram": ("add",),
    "json": ("list",),
}
"""The options that belong to some actions only."""
DEFAULT = "list"
MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("SCRAM-SHA-256", MECHANISM)
ITERATIONS, ITERATIONS_MAX = 4096, 16_384
PASSWORD_BYTES_MAX = 65_536


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_backend(
        parser, "a data directory that no broker serves now, as to add the first administrator"
    )
    add_actions(parser, ACTIONS, "USER")
    repeated(parser, "--user", metavar="USER", help="the same as the positional name")
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=MECHANISMS,
        help=f"add: the mechanism (default {MECHANISM}); delete: only its credential (default: "
        "all); may be repeated",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help=f"add: how often the password is hashed, {ITERATIONS} (the default) to "
        f"{ITERATIONS_MAX}",
    )
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="add: the file whose first line is the password, - for stdin (default: ask)",
    )
    repeated(
        parser,
        "--add-scram",
        metavar="MECHANISM=[name=USER,password=...]",
        help="add: a credential as `kafka-storage format` takes it, also with iterations= and "
        "salt= (base64); other users of the machine can see it",
    )
    parser.add_argument(
        "--node-id",
        type=int,
        metavar="N",
        help="with --dir: the node's id, if meta.properties has none (then the default is 1)",
    )
    parser.add_argument("--json", action="store_true", help="list: one JSON object per credential")


def run(options: argparse.Namespace) -> int:
    """Show or change credentials."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    users = [*words, *options.user]
    if action == "delete" and not users:
        raise UsageError("delete: whom? give the names of users")
    changes = _added(options, users) if action == "add" else []
    with _open(options, action) as place:
        if action == "list":
            _list(options, place.known(users or None))
        elif action == "add":
            for change in changes:
                place.change(change)
                say(f"{change.user}: {change.mechanism}")
        else:
            _delete(options, users, place)
    return 0


class Place(Protocol):
    """A cluster or a directory with credentials."""

    def known(self, users: list[str] | None) -> "dict[str, tuple[ScramCredentialInfo, ...]]":
        """The credentials of users; None: of all.  Raises: KafkalogError for an unknown user."""

    def change(self, change: "Change") -> None:
        """Raises: KafkalogError."""


# ---- actions -----------------------------------------------------------------------------------


def _list(options: argparse.Namespace, found: "dict[str, tuple[ScramCredentialInfo, ...]]") -> None:
    rows = [(user, one) for user in sorted(found) for one in found[user]]
    if options.json:
        for user, one in rows:
            print(json_line({"user": user, **one._asdict()}))
    elif rows:
        cells = [[user, one.mechanism, str(one.iterations)] for user, one in rows]
        print(table(["user", "mechanism", "iterations"], cells, left=frozenset({0, 1})))
    else:
        print("no user has a SCRAM credential")


def _delete(options: argparse.Namespace, users: list[str], place: Place) -> None:
    from kafkalog.client.calls.users import UserScramCredentialDeletion

    for user in dict.fromkeys(users):
        for mechanism in options.mechanism or [one.mechanism for one in place.known([user])[user]]:
            place.change(UserScramCredentialDeletion(user, mechanism))
            say(f"{user}: {mechanism} was deleted")


def _added(options: argparse.Namespace, users: list[str]) -> "list[UserScramCredentialUpsertion]":
    from kafkalog.client.calls.users import UserScramCredentialUpsertion

    if options.add_scram:
        if users or options.mechanism or options.iterations or options.password_file:
            raise UsageError("--add-scram: found other options of a user, wanted all in it")
        return [parse_add_scram(text) for text in options.add_scram]
    if len(users) != 1:
        raise UsageError(f"add: found {len(users)} users, wanted one")
    iterations = ITERATIONS if options.iterations is None else options.iterations
    if not ITERATIONS <= iterations <= ITERATIONS_MAX:
        raise UsageError(
            f"--iterations: found {iterations}, wanted {ITERATIONS} to {ITERATIONS_MAX}"
        )
    password = _password(options.password_file, users[0])
    return [
        UserScramCredentialUpsertion(users[0], one, password, iterations)
        for one in dict.fromkeys(options.mechanism or [MECHANISM])
    ]


def _password(path: str | None, user: str) -> str:
    """The first line of a file, or what is typed twice.  Raises: UsageError, OSError."""
    if path is None:
        from getpass import getpass

        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("add: no terminal to ask for the password; give --password-file FILE")
        password = getpass(f"Password of {user}: ")
        if getpass("Again: ") != password:
            raise UsageError("add: found two different passwords")
    else:
        password = first_line(path)
    if not password:
        raise UsageError("add: found an empty password, wanted at least one character")
    return password


def first_line(path: str) -> str:
    """The first line of a file with a secret, `-`: of stdin.  Raises: UsageError, OSError."""
    if path == "-":
        line = sys.stdin.readline(PASSWORD_BYTES_MAX)
    else:
        with open(path, encoding="utf-8") as file:
            try:
                line = file.readline(PASSWORD_BYTES_MAX)
            except UnicodeDecodeError:
                raise UsageError(f"{path}: found other bytes, wanted UTF-8") from None
    return line.removesuffix("\n").removesuffix("\r")


def parse_add_scram(text: str) -> "UserScramCredentialUpsertion":
    """A credential as `kafka-storage format --add-scram` takes it.

    Raises: UsageError, without values: one is a password.
    """
    from kafkalog.client.calls.users import UserScramCredentialUpsertion

    mechanism, _, rest = text.strip().partition("=")
    if mechanism not in MECHANISMS or not (rest.startswith("[") and rest.endswith("]")):
        raise UsageError(
            f"--add-scram: wanted MECHANISM=[name=...,password=...], MECHANISM one of "
            f"{', '.join(MECHANISMS)}"
        )
    given = {}
    for part in rest[1:-1].split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError("--add-scram: wanted name=value parts with commas between them")
        quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        given[name] = value[1:-1] if quoted else value
    user, password = given.pop("name", ""), given.pop("password", "")
    iterations, salt = given.pop("iterations", str(ITERATIONS)), given.pop("salt", None)
    if given:
        raise UsageError(f"--add-scram: found {', '.join(sorted(given))}, which is not supported")
    if not user or not password:
        raise UsageError("--add-scram: wanted a name and a password, not empty")
    if not iterations.isdecimal() or not ITERATIONS <= int(iterations) <= ITERATIONS_MAX:
        raise UsageError(f"--add-scram: iterations: wanted {ITERATIONS} to {ITERATIONS_MAX}")
    return UserScramCredentialUpsertion(user, mechanism, password, int(iterations), _salt(salt))


def _salt(text: str | None) -> bytes | None:
    import base64
    import binascii

    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        raise UsageError("--add-scram: salt: wanted base64") from None


# ---- where they are ----------------------------------------------------------------------------


@contextmanager
def _open(options: argparse.Namespace, action: str) -> Iterator[Place]:
    if options.dir is None:
        with open_admin(options) as admin:
            yield _Cluster(admin)
        return
    from kafkalog.directory.identity import node_number
    from kafkalog.directory.manager import Manager
    from kafkalog.kraft.kraftlog import MetadataLog

    mode = "r" if action == "list" else "w"
    with Manager(options.dir, mode=mode, node_id=None) as manager:
        try:
            number = node_number(options.dir, manager.meta, options.node_id, clustered=False)
            metadata = MetadataLog.open(manager, number=number)
        except BaseException:
            manager.abandon()  # an orderly end would write, too
            raise
        with metadata:
            yield _Directory(manager, metadata)


class _Cluster:
    def __init__(self, admin: "Admin") -> None:
        self._admin = admin

    def known(self, users: list[str] | None) -> "dict[str, tuple[ScramCredentialInfo, ...]]":
        return self._admin.describe_user_scram_credentials(users).check()

    def change(self, change: "Change") -> None:
        self._admin.alter_user_scram_credentials([change]).check()


class _Directory:
    def __init__(self, manager: "Manager", metadata: "MetadataLog") -> None:
        self._path, self._metadata = manager.path, metadata

    def known(self, users: list[str] | None) -> "dict[str, tuple[ScramCredentialInfo, ...]]":
        from kafkalog.client.calls.users import ScramCredentialInfo
        from kafkalog.security.scram import Mechanism

        names = {int(one): one.sasl_name for one in Mechanism}
        found: dict[str, tuple[ScramCredentialInfo, ...]] = {}
        for (user, kind), one in sorted(self._metadata.image.scram.items()):
            info = ScramCredentialInfo(names.get(kind, f"mechanism {kind}"), one.iterations)
            found[user] = (*found.get(user, ()), info)
        for user in users or ():
            if user not in found:
                raise CommandError(f"{self._path}: user {user!r} has no SCRAM credential")
        return {user: found[user] for user in users or found}

    def change(self, change: "Change") -> None:
        from kafkalog.client.calls.users import row_of
        from kafkalog.controller.users import Deletion, Upsertion, alter_user_scram_credentials
        from kafkalog.kraft.plan import Plan

        row = row_of(change)
        name, mechanism, *rest = row.fields.values()
        gone = [] if rest else [Deletion(name, mechanism)]
        new = [Upsertion(name, mechanism, *rest)] if rest else []
        (result,) = self._metadata.alter(
            lambda image: Plan(*alter_user_scram_credentials(image, gone, new))
        )
        if result["error_code"]:
            raise CommandError(f"{self._path}: user {name!r}: {result['error_message']}")
