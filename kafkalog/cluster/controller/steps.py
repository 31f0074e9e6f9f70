"""What a controller does about each kind of event: what it reads, then what it decides.

Steps are generators like decisions; in addition to writes they yield `Looks`, and are sent what
was found.  A znode that cannot be parsed is skipped and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from kafkalog.cluster.controller import brokers, deletion, reassign, requested_elections, topics
from kafkalog.cluster.controller.context import (
    NEVER_LED,
    Assignment,
    Change,
    Context,
    Copies,
    Folder,
    Reign,
    Removal,
    TopicPartition,
    Write,
    unclean_of,
)
from kafkalog.cluster.controller.events import Options, Read
from kafkalog.cluster.controller.partitions import lead_on, settle
from kafkalog.cluster.controller.requests import Gathered, Send
from kafkalog.errors import BadZnode
from kafkalog.metadata.image import Broker
from kafkalog.metadata.zookeeper import entities, own_settings, tree
from kafkalog.metadata.zookeeper.documents import DENIED
from kafkalog.metadata.zookeeper.loading import Loaded, Znode, broker
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA

__all__ = [
    "AGAIN", "BEGIN", "SEEN", "Looks", "Office", "Steps", "answered", "behind", "failed_again",
    "moves_again", "read_states", "seen", "stale_again",
]  # fmt: skip

_logger = logging.getLogger(__name__)
T = TypeVar("T")
SAID_MAX = 1000
"""Different errors of unreadable znodes that are logged in a reign."""
CHANGES_MAX = 1000
"""Notifications of changed settings that are kept, for brokers that have not read them yet."""


class Looks(NamedTuple):
    """What a step must read before it continues."""

    reads: Sequence[Read]


Steps = Generator[Sequence[Folder | Write | Assignment | Change | Removal] | Looks, Any, T]


class Office:
    """What a controller works with while it reigns."""

    def __init__(
        self, options: Options, reign: Reign, loaded: Loaded, strays: Copies | None = None
    ) -> None:
        """`strays`: as in Context."""
        self.options = options
        self.context = Context(reign, loaded, strays)
        self.image = loaded.image
        """The tree at the start of the reign; only settings are read from it."""
        self.random = Random(options.seed)
        self.told = Gathered(self.context, options.listener)
        self.producer_ids: Znode | None = None
        """The last block that was given out, as the tree has it; None: not read yet."""
        self.config_change = ""
        """The last notification of settings that was read."""
        self._said: set[str] = {str(problem) for problem in loaded.problems}
        """The errors of unreadable znodes that were logged."""

    def parsed(self, read: Callable[..., T], *arguments: Any) -> T | None:
        """What a znode says; None if it is unreadable, which is logged once."""
        try:
            return read(*arguments)
        except BadZnode as problem:
            if str(problem) not in self._said and len(self._said) < SAID_MAX:
                self._said.add(str(problem))
                _logger.warning("%s", problem)
            return None


# ---- what watches report -----------------------------------------------------------------------


def brokers_seen(office: Office) -> Steps[None]:
    """Brokers came, went, or changed their registration."""
    (names,) = yield Looks([Read(tree.BROKERS, children=True, watch=True)])
    numbers = [int(name) for name in names or () if name.isdecimal() and len(name) <= 10]
    znodes = yield Looks([Read(tree.broker_path(one), watch=True) for one in numbers])
    now: dict[int, Broker] = {}
    for number, znode in zip(numbers, znodes, strict=True):
        found = None if znode is None else office.parsed(broker, number, znode)
        known = office.context.brokers.get(number)
        if found is None and znode and known and (
            known.epoch == znode.created or znode.data == DENIED
        ):  # fmt: skip
            found = known  # it is alive, whatever overwrote its znode
        if found is not None:
            now[number] = found
    yield from brokers.brokers_are(office.context, office.told, now)


def topics_seen(office: Office) -> Steps[None]:
    """Topics came or went."""
    (names,) = yield Looks([Read(tree.TOPICS, children=True, watch=True)])
    known = office.context.ids
    for name in [name for name in known if name not in {*(names or ())}]:
        topics.topic_gone(office.context, name)
    yield from _topics_read(office, [name for name in names or () if name not in known])


def _topics_read(office: Office, names: Sequence[str]) -> Steps[None]:
    """Read topics' settings, and whether an out-of-sync replica may lead them.  If a move's end
    could not be written because the topic had changed, it is written now."""
    asked = [
        read
        for name in names
        for read in (
            Read(entities.config_path(("topics", name))),
            Read(tree.topic_path(name), watch=True),
        )
    ]
    found = (yield Looks(asked)) if asked else []
    context = office.context
    nodes: dict[str, tree.TopicNode] = {}
    for name, config, znode in zip(names, found[::2], found[1::2], strict=True):
        node = None if znode is None else office.parsed(tree.read_topic, name, znode.data)
        if znode is None or (node and name in context.ids and context.ids[name] != node.topic_id):
            topics.topic_gone(context, name)  # it is gone, or was recreated
        if node is not None:
            nodes[name] = node
            context.assigned_at[name] = znode.version
            context.says_unclean(name, _unclean(office, name, config))
    yield from topics.topics_are(context, office.told, nodes)
    yield from reassign.resume(
        context, office.told, [key for key in context.partitions if key[0] in nodes]
    )
    if context.deleted & nodes.keys():  # it may have got more partitions
        yield from deletion.delete_topics(context, office.told)


def _unclean(office: Office, topic: str, config: Znode | None) -> bool | None:
    entity = ("topics", topic)
    data = None if config is None else config.data
    return unclean_of(office.parsed(entities.read_config, entity, data) or {})


def deletions_seen(office: Office) -> Steps[None]:
    """Topics are to be deleted (/admin/delete_topics)."""
    (names,) = yield Looks([Read(tree.DELETE_TOPICS, children=True, watch=True)])
    new = [name for name in names or () if name not in office.context.deleted]
    if new and not office.options.deletes:
        yield office.context.removals(f"{tree.DELETE_TOPICS}/{name}" for name in new)
    elif new:
        yield from deletion.topics_to_delete(office.context, office.told, new)


def isr_changes_seen(office: Office) -> Steps[None]:
    """Leaders wrote ISRs themselves, as brokers of older versions do."""
    paths, znodes = yield from _notifications(tree.ISR_CHANGES)
    keys: dict[TopicPartition, None] = {}
    for path, znode in zip(paths, znodes, strict=True):
        if znode is not None:
            keys.update(dict.fromkeys(office.parsed(tree.read_isr_change, path, znode.data) or ()))
    known = [key for key in keys if key in office.context.partitions]
    yield from read_states(office, known)
    if known:
        office.told.know(known)
    if paths:
        yield office.context.removals(paths)


def log_dirs_seen(office: Office) -> Steps[None]:
    """Brokers lost disks: send them the partitions that they keep; they answer which are lost."""
    paths, znodes = yield from _notifications(tree.LOG_DIR_EVENTS)
    for path, znode in zip(paths, znodes, strict=True):
        one = None if znode is None else office.parsed(tree.read_log_dir_event, path, znode.data)
        if one is not None:
            for key in office.context.on(one):
                office.told.lead([one], key)
    if paths:
        yield office.context.removals(paths)


def _notifications(parent: str) -> Steps[tuple[list[str], list[Znode | None]]]:
    (names,) = yield Looks([Read(parent, children=True, watch=True)])
    paths = [f"{parent}/{name}" for name in names or ()]
    znodes = (yield Looks([Read(path) for path in paths])) if paths else []
    return paths, znodes


def election_seen(office: Office) -> Steps[None]:
    """Preferred leaders are to be elected (/admin/preferred_replica_election)."""
    (znode,) = yield Looks([Read(tree.ELECTION, watch=True)])
    if znode is not None:
        keys = office.parsed(tree.read_election, znode.data) or ()
        yield from requested_elections.elect_leaders(
            office.context, office.told, keys, unclean=False
        )
        yield office.context.removals([tree.ELECTION])


def reassignment_seen(office: Office) -> Steps[None]:
    """Partitions are to be moved (/admin/reassign_partitions)."""
    (znode,) = yield Looks([Read(tree.REASSIGNMENT, watch=True)])
    if znode is None:
        office.context.asked_by_tree = {}
        return
    wanted = office.parsed(tree.read_reassignment, znode.data) or {}
    if wanted != office.context.asked_by_tree or not wanted:
        refused = yield from reassign.ask_by_tree(office.context, office.told, wanted)
        for (topic, number), why in refused.items():
            _logger.warning("%s-%d is not reassigned: %s", topic, number, why.message)


def settings_seen(office: Office) -> Steps[None]:
    """Settings changed: apply what topics say about elections."""
    (names,) = yield Looks([Read(entities.CHANGES, children=True, watch=True)])
    new = [name for name in names or () if name > office.config_change]
    paths = [f"{entities.CHANGES}/{name}" for name in new]
    znodes = (yield Looks([Read(path) for path in paths])) if paths else []
    office.config_change = max([office.config_change, *new])
    changed: dict[str, None] = {}
    for path, znode in zip(paths, znodes, strict=True):
        entity = None if znode is None else office.parsed(entities.read_change, path, znode.data)
        if entity is not None and entity[0] == "topics" and entity[1] in office.context.ids:
            changed[entity[1]] = None
    reads = [Read(entities.config_path(("topics", name))) for name in changed]
    found = (yield Looks(reads)) if reads else []
    for name, config in zip(changed, found, strict=True):
        said = _unclean(office, name, config)
        yield from topics.unclean_is(office.context, office.told, name, said)
    old = [f"{entities.CHANGES}/{name}" for name in (names or [])[:-CHANGES_MAX]]
    if old:
        yield office.context.removals(old)


Step = Callable[[Office], Steps[None]]
SEEN: Mapping[str, Step] = {
    tree.BROKERS: brokers_seen,
    tree.TOPICS: topics_seen,
    tree.DELETE_TOPICS: deletions_seen,
    tree.ISR_CHANGES: isr_changes_seen,
    tree.LOG_DIR_EVENTS: log_dirs_seen,
    tree.ELECTION: election_seen,
    tree.REASSIGNMENT: reassignment_seen,
    entities.CHANGES: settings_seen,
}
"""The steps, by watched path."""


def seen(path: str) -> Step | None:
    """The step for a watch that fired; None: nothing follows."""
    parent, _, name = path.rpartition("/")
    if parent == tree.TOPICS:
        return lambda office: _topics_read(office, [name])
    return SEEN.get(tree.BROKERS if parent == tree.BROKERS else path)


# ---- a reign begins ------------------------------------------------------------------------------


def first(office: Office) -> Steps[None]:
    """Send all brokers everything that was found in the tree, and do what is due."""
    yield from brokers.begin(office.context, office.told)


def watch_topics(office: Office) -> Steps[None]:
    """Watch the found topics for changes from now on."""
    yield from _topics_read(office, list(office.context.ids))


def own_settings_left(office: Office) -> Steps[None]:
    """Remove the settings of topics that controllers deleted that do not know of them: Kafka's."""
    places = tree.OWN_TOPICS, tree.TOPICS
    names, known = yield Looks([Read(place, children=True) for place in places])
    left = [] if known is None else sorted({*(names or ())} - {*known})
    if left:
        yield office.context.removals([own_settings.path_of(name) for name in left])


AGAIN: Sequence[Step] = (
    brokers_seen, topics_seen, watch_topics,
    *(step for step in SEEN.values() if step not in (brokers_seen, topics_seen)),
)  # fmt: skip
"""Read everything that is watched, in this order."""
BEGIN: Sequence[Step] = (first, *AGAIN, own_settings_left)
"""The first steps of a reign."""


# ---- what differs from what was known ------------------------------------------------------------


def read_states(office: Office, keys: Iterable[TopicPartition]) -> Steps[None]:
    """Read partitions' states from the tree."""
    context, keys = office.context, list(keys)
    znodes = (yield Looks([Read(tree.partition_path(*key)) for key in keys])) if keys else []
    for key, znode in zip(keys, znodes, strict=True):
        if key not in context.partitions:
            continue
        state = None if znode is None else office.parsed(tree.read_partition, *key, znode.data)
        if state is not None:
            context.read(key, state, znode.version)
        elif znode is None:
            context.read(key, tree.PartitionState(-1, NEVER_LED, (), context.reign.epoch), -1)
        else:
            context.stale.add(key)
            context.unread.add(key)


def stale_again(office: Office) -> Steps[None]:
    """Read again what was found to differ from what was known, send it, and decide again.

    A leader may have been refused an ISR because of it, and does not ask again before it leads in
    another epoch.
    """
    context, told = office.context, office.told
    keys = sorted(key for key in context.stale if key in context.partitions)
    before = {key: context.partitions[key].partition_epoch for key in keys}
    yield from read_states(office, keys)
    known = {key: context.partitions[key] for key in keys if key not in context.stale}
    if known:
        told.know(known)
    yield from settle(context, told, known)
    yield from lead_on(context, told, [
        key for key, one in known.items()
        if context.partitions[key] == one and one.partition_epoch != before[key]
    ])  # fmt: skip
    context.unread |= context.stale & known.keys()  # these wait for the retry clock


def moves_again(office: Office) -> Steps[None]:
    """End the moves that may end now: an election, too, may have left only new replicas in sync."""
    keys, office.context.shifted = sorted(office.context.shifted), set()
    yield from reassign.resume(office.context, office.told, keys)


# ---- what brokers answer -------------------------------------------------------------------------


def answered(office: Office, send: Send, response: Any) -> Steps[None]:
    """A broker answered: a disk of it may have failed, or it may have dropped a copy."""
    context = office.context
    known = context.brokers.get(send.broker)
    if known is None or known.epoch != send.body["broker_epoch"]:
        return  # for an earlier life
    if send.api.key == LEADER_AND_ISR.key and not response.error_code:
        yield from _led(office, send, response)
    elif send.api.key == STOP_REPLICA.key:
        deleted = {(topic["topic_name"], row["partition_index"])
                   for topic in send.body["topic_states"] for row in topic["partition_states"]
                   if row["delete_partition"]}  # fmt: skip
        failed = {(row.topic_name, row.partition_index): ErrorCode(row.error_code)
                  for row in response.partition_errors if row.error_code}  # fmt: skip
        all_of_it = ErrorCode(response.error_code)
        dropped = {key: failed.get(key, all_of_it) for key in sorted(deleted)}
        yield from deletion.replicas_dropped(context, office.told, send.broker, dropped)


def failed_again(office: Office) -> Steps[None]:
    """Retry what brokers could not drop, what the tree refused, and what could not be read."""
    yield from deletion.delete_again(office.context, office.told)
    if office.context.unread:
        yield from stale_again(office)


def _led(office: Office, send: Send, response: Any) -> Steps[None]:
    context = office.context
    names = {topic_id: name for name, topic_id in context.ids.items()}
    rows = {(names[topic.topic_id], row.partition_index): row.error_code
            for topic in response.topics if topic.topic_id in names
            for row in topic.partition_errors}  # fmt: skip
    lost = {key for key, code in rows.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
    held = context.lost_directories.get(send.broker, frozenset())
    back = sorted(key for key in held if rows.get(key) == ErrorCode.NONE)
    context.lost_directories[send.broker] = held.difference(back)
    new = [key for key in lost if key not in held]
    if new:
        yield from brokers.directories_lost(context, office.told, send.broker, sorted(new))
    if back:
        office.told.know(back)
        yield from settle(context, office.told, back)
        if context.deleted & {topic for topic, _ in back}:
            yield from deletion.delete_topics(context, office.told)


def behind(office: Office, broker: int) -> Steps[None]:
    """Send a broker everything again."""
    context, told = office.context, office.told
    if broker in context.brokers:
        told.announce(to=[broker])
        told.know(context.partitions, to=[broker])
        for key in context.on(broker):
            told.lead([broker], key)
        yield from deletion.drop_strays(context, told, [broker])
        yield from deletion.delete_topics(context, told)
