"""Notices, while a node runs, that its cluster got something that this node does not support."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from kafkalog.cluster.node.facts import REFUSE, WARN
from kafkalog.cluster.node.unsupported import TOKENS, News, unsupported
from kafkalog.errors import BadZnode
from kafkalog.logs.limit import limited
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.entities import Entity
from kafkalog.zookeeper.loading import Znode, broker
from kafkalog.zookeeper.reading import watched_children
from kafkalog.zookeeper.session import Session

__all__ = ["UnsupportedWatch"]

_logger = limited(__name__)

LEVELS = {REFUSE: logging.ERROR, WARN: logging.WARNING}
"""By severity: a node that is about to join would be refused, or warned."""
SAID_MAX = 1000
"""Subjects that one node logs; a topic's settings are such a subject."""


class UnsupportedWatch:
    """Logs each subject once.  Safe to use from several threads."""

    def __init__(
        self, session: Session, node: int, listeners: Mapping[str, int], with_tokens: bool = False
    ) -> None:
        """`listeners`: those by which this node reaches other brokers and the controller, with the
        numbers of their protocols; `with_tokens`: it knows delegation tokens."""
        self._with_tokens = with_tokens
        self._session, self._node, self._listeners = session, node, listeners
        self._said: set[str] = set()
        self._lock = threading.Lock()  # guards it

    def look(self) -> None:
        """Read, and watch, what no notification of settings announces.

        Raises: ZooKeeperAway.
        """
        for read in (self._tokens, self._brokers):
            try:
                news = read()
            except BadZnode as problem:  # it may be unreadable for this node alone
                if self._is_new(str(problem)):
                    _logger.warning("%s", problem)
            else:
                self._say(news)

    def settings(self, settings: Mapping[Entity, Mapping[str, str]]) -> None:
        """Settings of topics were read."""
        self._say(News(settings=settings))

    def _tokens(self) -> News:
        return (
            News()
            if self._with_tokens or TOKENS in self._said
            else News(tokens=watched_children(self._session, tree.DELEGATION_TOKENS))
        )

    def _brokers(self) -> News:
        numbers = [
            int(name) for name in watched_children(self._session, tree.BROKERS) if name.isdecimal()
        ]
        found = self._session.look([(tree.broker_path(one), False, False) for one in numbers])
        brokers = {number: broker(number, znode)
                   for number, znode in zip(numbers, found, strict=True)
                   if isinstance(znode, Znode)}  # fmt: skip
        return News(brokers=brokers, node=self._node, listeners=self._listeners)

    def _say(self, news: News) -> None:
        for one in unsupported(news):
            if self._is_new(one.subject):
                _logger.log(LEVELS[one.severity], "broker %d: %s", self._node, one)

    def _is_new(self, said: str) -> bool:
        """True if it is logged for the first time."""
        with self._lock:
            if said in self._said or len(self._said) >= SAID_MAX:
                return False
            self._said.add(said)
            return True
