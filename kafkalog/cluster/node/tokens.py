"""The delegation tokens of a cluster on ZooKeeper, read from the tree into the metadata's image.

As with Kafka, every broker that has delegation.token.secret.key reads all of them at its start,
then those that notifications name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalog.errors import BadZnode
from kafkalog.metadata.image import MetadataImage
from kafkalog.security.tokens import Token
from kafkalog.zookeeper import tokens, tree
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.notifications import Notifications
from kafkalog.zookeeper.session import Session

__all__ = ["TreeTokens"]


class TreeTokens:
    """One node's view of them.  One thread at a time."""

    def __init__(
        self, session: Session, known: Callable[[], MetadataImage], use: Callable[..., None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`known`: the image; `use`: called with its new `tokens`, once they differ; `say`: called
        with each problem."""
        self._session, self._known, self._use, self._say = session, known, use, say
        self._notified = Notifications(session, tokens.CHANGES, tokens.CHANGE)
        self._stale = True
        """Everything must be read: it never was, or changes may have been missed."""
        self._unreadable: set[str] = set()

    def forget(self) -> None:
        """Read everything at the next look."""
        self._stale = True

    @property
    def is_whole(self) -> bool:
        """False if something was unreadable at the last look: the next one reads it again."""
        return not self._stale and not self._unreadable

    def look(self) -> None:
        """Read the tokens that notifications name; all of them, if some may have been missed.

        Raises: ZooKeeperAway: the next look reads everything.
        """
        stale, self._stale = self._stale, True  # until all is read
        self._stale = not ((not stale and self._read_notified()) or self._read_all())

    def _read_notified(self) -> bool:
        """Read what was notified; False: that does not say all."""
        try:
            found = self._notified.look()
            if found is None:
                return False
            changed = {tokens.read_change(path, data) for path, data in found}
        except BadZnode as problem:
            self._say(f"{problem}: all tokens are read again")
            return False
        self.read(changed | self._unreadable)
        return True

    def _read_all(self) -> bool:
        """Read all again; False: they cannot be listed."""
        whole = True
        try:
            self._notified.begin()
        except BadZnode as problem:
            whole = False
            self._say(f"{problem}: until it is readable, all tokens are read from time to time")
        try:
            names = self._session.children(tree.DELEGATION_TOKENS) or ()
        except BadZnode as problem:
            self._say(f"{problem}: until it is readable, no delegation token is accepted")
            names, whole = (), False
        self._unreadable.clear()
        self._use_tokens(self._found(filter(tokens.is_id, names)))
        return whole

    def read(self, changed: Iterable[str]) -> None:
        """Read these again.

        Raises: ZooKeeperAway.
        """
        ids = [*changed]
        if not ids:
            return
        found = self._found(ids)
        others = {name: one for name, one in self._known().tokens.items() if name not in ids}
        self._use_tokens({**others, **found})

    def _found(self, ids: Iterable[str]) -> dict[str, Token]:
        """Those of the tokens that exist and are readable."""
        ids = [*ids]
        znodes = self._session.look([(tokens.path_of(one), False, False) for one in ids])
        found: dict[str, Token] = {}
        for token_id, znode in zip(ids, znodes, strict=True):
            self._unreadable.discard(token_id)
            try:
                if isinstance(znode, BadZnode):
                    raise znode
                if isinstance(znode, Znode):
                    token = tokens.read_token(token_id, znode.data)
                    found |= {} if token is None else {token_id: token}
            except BadZnode as problem:
                self._unreadable.add(token_id)
                self._say(f"{problem}: until it is readable, this token is not accepted")
        return found

    def _use_tokens(self, whole: Mapping[str, Token]) -> None:
        if whole != self._known().tokens:
            self._use(tokens=whole)
