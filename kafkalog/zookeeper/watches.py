"""A controller's steps when watched znodes change, and when it begins to watch them.

Steps, as defined in kafkalog.controller.active: they read the tree, and hand what they find to the
rules.  A znode that cannot be parsed is skipped and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalog.controller import brokers, deletion, reassign, requested_elections, steps, topics
from kafkalog.controller.active import Active, Periodic, Steps, Work
from kafkalog.controller.context import Claim, Snapshot, unclean_of
from kafkalog.controller.core import Controller
from kafkalog.controller.events import Clock, Options
from kafkalog.controller.records import ElectionEnd, TopicPartition
from kafkalog.controller.steps import read_states
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import Broker, Topic
from kafkalog.zookeeper import entities, own_settings, tree
from kafkalog.zookeeper.documents import DENIED
from kafkalog.zookeeper.events import Read, Seen, WatchesLost
from kafkalog.zookeeper.loading import Loaded, Znode, broker
from kafkalog.zookeeper.notifications import (
    PURGED_AT_ONCE,
    is_obsolete,
    new_numbers,
    numbered,
)
from kafkalog.zookeeper.store import Reads, Removals, ZooKeeperRecords

__all__ = ["WATCHES", "ZooKeeperStore", "controller"]

_logger = limited(__name__)
CHANGES_MAX = 1000
"""Notifications of changed settings that are kept, whatever their age."""


class ZooKeeperStore(ZooKeeperRecords):
    """The store of one active controller: its records, and its watches."""

    def __init__(self, claim: Claim, loaded: Loaded) -> None:
        super().__init__(claim, loaded)
        self.config_change: int | None = None
        """The number of the last notification of settings that was read; -1: there was none."""

    @property
    def periodic(self) -> Mapping[Clock, Periodic]:
        """None of its own."""
        return {}

    def first_works(self) -> Sequence[Work]:
        """Send all brokers what was found, read everything that is watched, and clear up."""
        first = Work(steps.first.__name__, steps.first, steps.first)
        return [first, *(self._named(step) for step in (*_ALL, own_settings_left))]

    def works(self, event: object) -> Iterable[Work]:
        """The work after a watch fired, or after watches were lost."""
        if isinstance(event, WatchesLost):
            return [self._named(step) for step in _ALL]
        assert isinstance(event, Seen)
        parent, _, name = event.path.rpartition("/")
        if parent == tree.TOPICS:
            return [Work(event.path, lambda active: _topics_read(self, active, [name]), event.path)]
        step = WATCHES.get(tree.BROKERS if parent == tree.BROKERS else event.path)
        return [] if step is None else [Work(event.path, self._bound(step), event.path)]

    def _named(self, step: Step) -> Work:
        return Work(step.__name__, self._bound(step), step)

    def _bound(self, step: Step) -> Callable[[Active], Steps[None]]:
        return lambda active: step(self, active)


def controller(options: Options) -> Controller:
    """A controller whose store is ZooKeeper."""

    def store(claim: Claim, snapshot: Snapshot) -> ZooKeeperStore:
        assert isinstance(snapshot, Loaded)
        return ZooKeeperStore(claim, snapshot)

    return Controller(options, store)


Step = Callable[[ZooKeeperStore, Active], Steps[None]]


# ---- what watches report -----------------------------------------------------------------------


def brokers_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Brokers came, went, or changed their registration."""
    (names,) = yield Reads([Read(tree.BROKERS, children=True, watch=True)])
    numbers = [int(name) for name in names or () if name.isdecimal() and len(name) <= 10]
    znodes = yield Reads([Read(tree.broker_path(one), watch=True) for one in numbers])
    now: dict[int, Broker] = {}
    for number, znode in zip(numbers, znodes, strict=True):
        found = None if znode is None else store.parsed(broker, number, znode)
        known = active.context.brokers.get(number)
        if found is None and znode and known and (
            known.epoch == znode.created or znode.data == DENIED
        ):  # fmt: skip
            found = known  # it is alive, whatever overwrote its znode
        if found is not None:
            now[number] = found
    yield from brokers.brokers_changed(active.context, active.batch, now)


def topics_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Topics came or went."""
    (names,) = yield Reads([Read(tree.TOPICS, children=True, watch=True)])
    known = active.context.ids
    for name in [name for name in known if name not in {*(names or ())}]:
        topics.topic_removed(active.context, name)
        store.topic_read(name, None)
    yield from _topics_read(store, active, [name for name in names or () if name not in known])


def _topics_read(store: ZooKeeperStore, active: Active, names: Sequence[str]) -> Steps[None]:
    """Read topics' settings, and whether an out-of-sync replica may lead them.  If a move's end
    could not be written because the topic had changed, it is written now."""
    reads = [Read(entities.config_path(("topics", name))) for name in names]
    reads += [Read(tree.topic_path(name), watch=True) for name in names]
    found = (yield Reads(reads)) if reads else []
    context = active.context
    read: dict[str, Topic] = {}
    configs, znodes = found[: len(names)], found[len(names) :]
    for name, config, znode in zip(names, configs, znodes, strict=True):
        node = None if znode is None else store.parsed(tree.read_topic, name, znode.data)
        if znode is None or (node and name in context.ids and context.ids[name] != node.topic_id):
            topics.topic_removed(context, name)  # it is gone, or was recreated
            store.topic_read(name, None)
        if node is not None:
            read[name] = _topic(name, node)
            store.topic_read(name, znode.version)
            context.set_unclean(name, _unclean(store, name, config))
    yield from topics.topics_changed(context, active.batch, read.values())
    yield from reassign.resume(
        context, active.batch, [key for key in context.partitions if key[0] in read]
    )
    if context.deleted & read.keys():  # it may have got more partitions
        yield from deletion.delete_topics(context, active.batch)


def _topic(name: str, node: tree.TopicNode) -> Topic:
    return Topic(name, node.topic_id, {
        number: topics.never_led(
            number, replicas, node.adding.get(number, ()), node.removing.get(number, ())
        )
        for number, replicas in node.replicas.items()
    })  # fmt: skip


def _unclean(store: ZooKeeperStore, topic: str, config: Znode | None) -> bool | None:
    entity = ("topics", topic)
    data = None if config is None else config.data
    return unclean_of(store.parsed(entities.read_config, entity, data) or {})


def deletions_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Topics are to be deleted (/admin/delete_topics)."""
    (names,) = yield Reads([Read(tree.DELETE_TOPICS, children=True, watch=True)])
    new = [name for name in names or () if name not in active.context.deleted]
    if new and not active.options.deletes:
        yield Removals([f"{tree.DELETE_TOPICS}/{name}" for name in new])
    elif new:
        yield from deletion.topics_to_delete(active.context, active.batch, new)


def isr_changes_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Leaders wrote ISRs themselves, as brokers of older versions do."""
    paths, znodes = yield from _notifications(tree.ISR_CHANGES)
    keys: dict[TopicPartition, None] = {}
    for path, znode in zip(paths, znodes, strict=True):
        if znode is not None:
            keys.update(dict.fromkeys(store.parsed(tree.read_isr_change, path, znode.data) or ()))
    known = [key for key in keys if key in active.context.partitions]
    yield from read_states(active, known)
    if known:
        active.batch.update_metadata(known)
    if paths:
        yield Removals(paths)


def log_dirs_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Brokers lost disks: send them the partitions that they keep; they answer which are lost."""
    paths, znodes = yield from _notifications(tree.LOG_DIR_EVENTS)
    for path, znode in zip(paths, znodes, strict=True):
        one = None if znode is None else store.parsed(tree.read_log_dir_event, path, znode.data)
        if one is not None:
            for key in active.context.on(one):
                active.batch.leader_and_isr([one], key)
    if paths:
        yield Removals(paths)


def _notifications(parent: str) -> Steps[tuple[list[str], list[Znode | None]]]:
    (names,) = yield Reads([Read(parent, children=True, watch=True)])
    paths = [f"{parent}/{name}" for name in names or ()]
    znodes = (yield Reads([Read(path) for path in paths])) if paths else []
    return paths, znodes


def election_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Preferred leaders are to be elected (/admin/preferred_replica_election)."""
    (znode,) = yield Reads([Read(tree.ELECTION, watch=True)])
    if znode is not None:
        keys = store.parsed(tree.read_election, znode.data) or ()
        yield from requested_elections.elect_leaders(
            active.context, active.batch, keys, unclean=False
        )
        yield [ElectionEnd()]


def reassignment_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Partitions are to be moved (/admin/reassign_partitions)."""
    (znode,) = yield Reads([Read(tree.REASSIGNMENT, watch=True)])
    if znode is None:
        active.context.requested_moves = {}
        return
    wanted = store.parsed(tree.read_reassignment, znode.data) or {}
    if wanted != active.context.requested_moves or not wanted:
        refused = yield from reassign.reassign_requested(active.context, active.batch, wanted)
        for (topic, number), why in refused.items():
            _logger.warning("%s-%d is not reassigned: %s", topic, number, why.message)


def settings_seen(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Settings changed: apply what topics say about elections."""
    (names,) = yield Reads([Read(entities.CHANGES, children=True, watch=True)])
    there = numbered(names or (), entities.CHANGE_PREFIX)
    last = store.config_change
    new = list(there) if last is None else new_numbers(there, last)
    paths = [f"{entities.CHANGES}/{there[number]}" for number in new or ()]
    znodes = (yield Reads([Read(path) for path in paths])) if paths else []
    store.config_change = max(there, default=-1)
    changed: dict[str, None] = {}
    if new is None or (last is not None and None in znodes):  # some are missing
        changed = dict.fromkeys(active.context.ids)
    for path, znode in zip(paths, znodes, strict=True):
        entity = None if znode is None else store.parsed(entities.read_change, path, znode.data)
        if entity is not None and entity[0] == "topics" and entity[1] in active.context.ids:
            changed[entity[1]] = None
    reads = [Read(entities.config_path(("topics", name))) for name in changed]
    found = (yield Reads(reads)) if reads else []
    for name, config in zip(changed, found, strict=True):
        said = _unclean(store, name, config)
        yield from topics.unclean_changed(active.context, active.batch, name, said)
    now_ms = max((znode.created_ms for znode in znodes if znode is not None), default=0)
    yield from _purge([*there.values()][:-CHANGES_MAX][:PURGED_AT_ONCE], now_ms)


def _purge(names: Sequence[str], now_ms: int) -> Steps[None]:
    """Delete the notifications of settings that are obsolete."""
    paths = [f"{entities.CHANGES}/{name}" for name in names]
    znodes = (yield Reads([Read(path) for path in paths])) if paths and now_ms else []
    old = [path for path, znode in zip(paths, znodes, strict=False)
           if znode is not None and is_obsolete(znode, now_ms)]  # fmt: skip
    if old:
        yield Removals(old)


def watch_topics(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Watch the found topics for changes from now on."""
    yield from _topics_read(store, active, list(active.context.ids))


def own_settings_left(store: ZooKeeperStore, active: Active) -> Steps[None]:
    """Remove the settings of topics that controllers deleted that do not know of them: Kafka's."""
    places = tree.OWN_TOPICS, tree.TOPICS
    names, known = yield Reads([Read(place, children=True) for place in places])
    left = [] if known is None else sorted({*(names or ())} - {*known})
    if left:
        yield Removals([own_settings.path_of(name) for name in left])


WATCHES: Mapping[str, Step] = {
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
_ALL: Sequence[Step] = (
    brokers_seen, topics_seen, watch_topics,
    *(step for step in WATCHES.values() if step not in (brokers_seen, topics_seen)),
)  # fmt: skip
"""Read everything that is watched, in this order."""
