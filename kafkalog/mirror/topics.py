"""The topics of a mirror: which are copied, their copies and settings, and whether either side has
lost records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalog import errors
from kafkalog.client.calls.configs import ConfigResource
from kafkalog.client.calls.offsets import EpochEnd, epoch_ends
from kafkalog.client.calls.topics import NewTopic
from kafkalog.client.link.failures import failure, passing
from kafkalog.client.link.metadata import NO_NODE, TopicInfo
from kafkalog.mirror import losses, state
from kafkalog.mirror.life import Life
from kafkalog.mirror.losses import Loss
from kafkalog.mirror.origins import Origin, origins, returned
from kafkalog.mirror.settings import POLICY, changes
from kafkalog.mirror.state import Progress
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Topics", "id_of"]

EPOCHS_MS = 10_000
"""How long a leader may have metadata that is older than the records copied."""
SETTINGS_AT_ONCE = 200
"""Topics whose settings are in memory at the same time: each has dozens, on both sides."""
HOW_TO_ACCEPT = "accept the loss by --accept-loss, or let a mirror with another name copy it"


class Topics(Life):
    """Keeps the list of topics and their copies up to date."""

    _ids: dict[str, str]
    """The source's topics that are copied, and their ids."""
    _stale: bool
    """It must start over."""
    _compacted: set[str]
    _leaderless: list[TopicPartition]
    """Partitions of the source that have no leader now."""

    def refresh(self) -> None:
        """Check for new topics and partitions, changed settings, and losses.  No transaction is
        open."""
        every = self.source.list_topics()
        self._forget_aside(every)
        # Read after the topics were listed: a mirror stores what it will create before it does.
        self._look_for_copies([name for name in every if name.startswith(state.PREFIX)])
        infos = self.source.describe_topics(self.wish.names(every)).done
        known = origins(self.others.states)
        self._drop_returned(infos, known)
        for name, info in list(infos.items()):
            if why := self._refusal(info):
                self._put_aside(name, why)
                del infos[name]
            elif self.source_id == self.target_id and self.wish.topics.fullmatch(
                self.wish.renamed(name)
            ):
                raise errors.ArgumentError(
                    f"rename: topic {name!r} would be copied to {self.wish.renamed(name)!r} of the "
                    f"same cluster, which {self.wish.topics.pattern!r} matches, too"
                )
        for tp in [tp for tp in self.fetcher.positions if tp.topic not in infos]:
            self.fetcher.core.forget(tp)
        copies = self._make_topics(infos, known)
        self._ids = {name: id_of(info) for name, info in infos.items()}
        self._follow_settings(list(infos))
        partitions = self._led(infos.values())
        self._claim(partitions, infos, copies, known)
        self._examine([tp for tp in partitions if tp.topic not in self.counts.aside])
        self.counts.topics = len({tp.topic for tp in self.fetcher.positions})
        self.counts.partitions = len(self.fetcher.positions)

    def _look_for_copies(self, states: list[str]) -> None:
        try:
            self.others.look(states)
        except errors.KafkalogError as problem:
            if passing(problem) or isinstance(problem, errors.BadAnswer):
                raise
            raise type(problem)(
                f"cannot find out which topics of the source are copies: {problem}; allow the "
                f"mirror to read {state.PREFIX}*"
            ) from problem

    def _led(self, infos: Iterable[TopicInfo]) -> list[TopicPartition]:
        """The partitions that have a leader now; the others hold up none of them."""
        led, self._leaderless = [], []
        for info in infos:
            for number, row in info.partitions.items():
                tp = TopicPartition(info.name, number)
                if row.leader != NO_NODE:
                    led.append(tp)
                    continue
                self._leaderless.append(tp)
                self._say_once(
                    f"{tp.topic}-{number} of the source has no leader: it is copied once it has one"
                )
        return led

    def _drop_returned(self, infos: dict[str, TopicInfo], known: Mapping[str, Origin]) -> None:
        """Leave out topics that came from the target."""
        found = {}
        for name, info in list(infos.items()):
            origin = known.get(name)
            if origin is not None and returned(origin, id_of(info), self.target_id):
                found[name] = (
                    f"it is a copy that came from the target, by {origin.state!r} of the source"
                )
                del infos[name]
        self.counts.returned = found

    def _refusal(self, info: TopicInfo) -> str:
        """Why a topic is not copied; empty if it is."""
        if info.name in self.counts.aside:
            return self.counts.aside[info.name]
        some = [self._progress.get(TopicPartition(info.name, n)) for n in info.partitions]
        for known in [one for one in some if one is not None]:
            if known.copy and known.copy != self.wish.renamed(info.name):
                return (
                    f"its copy is {known.copy!r}, and --rename would name it "
                    f"{self.wish.renamed(info.name)!r}: give the mirror another name"
                )
            if known.topic_id != id_of(info) and not self.wish.accepts(info.name):
                return (
                    f"it was recreated in the source (id {id_of(info)}, the copy is "
                    f"of {known.topic_id}): {HOW_TO_ACCEPT} elsewhere"
                )
            if known.lost and not self.wish.accepts(info.name):
                return f"{known.lost}: {HOW_TO_ACCEPT} elsewhere"
        return ""

    def _put_aside(self, topic: str, why: str) -> None:
        if topic not in self.counts.aside:
            self.warn(f"topic {topic!r}: {why}; it is not copied")
        self.counts.aside[topic] = why
        for tp in [tp for tp in self.fetcher.positions if tp.topic == topic]:
            self.fetcher.core.forget(tp)

    def _forget_aside(self, every: Iterable[str]) -> None:
        """Forget those that the source no longer has: anyone who creates and deletes topics there
        could fill the memory.  One that comes back is examined again."""
        left = self.counts.aside.keys() & set(every)
        if len(left) < len(self.counts.aside):
            self.counts.aside = {name: self.counts.aside[name] for name in sorted(left)}

    # ---- copies ------------------------------------------------------------------------

    def _make_topics(
        self, infos: dict[str, TopicInfo], known: Mapping[str, Origin]
    ) -> dict[str, str]:
        """Create topics and partitions that the target lacks; returns the ids of all copies."""
        there = set(self.target.list_topics(internal=True))
        gone = [name for name in infos if self.wish.renamed(name) not in there]
        for name in [name for name in gone if self._begun(name)]:
            if not self.wish.accepts(name):
                self._put_aside(name, f"its copy was deleted in the target: {HOW_TO_ACCEPT}")
                del infos[name]
        self._announce([infos[name] for name in gone if name in infos], known)
        made = [
            NewTopic(self.wish.renamed(name), len(infos[name].partitions),
                     self.wish.replication_factor)
            for name in gone if name in infos
        ]  # fmt: skip
        by_copy = {self.wish.renamed(name): name for name in infos}
        for copy, problem in self.target.create_topics(made).errors.items() if made else ():
            if not isinstance(problem, errors.TopicExists):
                self._harm(by_copy[copy], f"the target does not create {copy!r}", problem, infos)
        counts = {self.wish.renamed(name): len(info.partitions) for name, info in infos.items()}
        found = self.target.describe_topics(list(counts)).check()
        grown = {copy: n for copy, n in counts.items() if len(found[copy].partitions) < n}
        for copy, problem in self.target.create_partitions(grown).errors.items() if grown else ():
            now = self.target.describe_topics([copy]).check()[copy]
            if len(now.partitions) < grown[copy]:  # otherwise only the answer was lost
                what = f"the target does not add partitions to {copy!r}"
                self._harm(by_copy[copy], what, problem, infos)
        self._stale = self._stale or bool(grown and self._ids)  # the producer's metadata is old
        return {by_copy[copy]: id_of(info) for copy, info in found.items()}

    def _harm(
        self, topic: str, what: str, problem: errors.KafkalogError, infos: dict[str, TopicInfo]
    ) -> None:
        """A failure that concerns one topic.  Raises: it, if it may pass."""
        if passing(problem):
            raise type(problem)(f"topic {topic!r}: {what}: {problem}")
        self._put_aside(topic, f"{what}: {problem}")
        infos.pop(topic, None)

    def _begun(self, topic: str) -> bool:
        return any(one.spans for tp, one in self._progress.items() if tp.topic == topic)

    def _announce(self, some: Iterable[TopicInfo], known: Mapping[str, Origin]) -> None:
        """Store the names of copies before they are created: a mirror of the target that finds one
        knows from the beginning that it is a copy."""
        begun = {}
        for info in some:
            for number in info.partitions:
                tp = TopicPartition(info.name, number)
                if tp not in self._progress:
                    begun[tp] = self._named(Progress(id_of(info), 0, ()), info.name, "", known)
        if begun:
            self.producer.begin_transaction()
            self._store(begun)

    def _named(
        self, one: Progress, topic: str, copy_id: str, known: Mapping[str, Origin]
    ) -> Progress:
        """The progress with the name of its copy, and the clusters on the way."""
        origin = known.get(topic)
        via = (*(origin.via if origin else ()), self.source_id)[-state.CLUSTERS_MAX :]
        epoch = one.copy_epoch if one.copy_id == copy_id else -1
        return one._replace(
            copy=self.wish.renamed(topic), copy_id=copy_id, copy_epoch=epoch, via=via
        )

    def _claim(
        self, partitions: list[TopicPartition], infos: Mapping[str, TopicInfo],
        copies: Mapping[str, str], known: Mapping[str, Origin],
    ) -> None:  # fmt: skip
        """Store where partitions begin, before their first record, and what has changed since."""
        fresh, moved = [], {}
        for tp in partitions:
            one = self._progress.get(tp)
            if one is None or not one.spans:
                fresh.append(tp)
                continue
            copy_id = copies[tp.topic]
            if one.topic_id != self._ids[tp.topic]:
                self.warn(f"{tp.topic}-{tp.partition}: recreated in the source; copied from its "
                          "beginning, as accepted")  # fmt: skip
                fresh.append(tp)
            elif one.copy_id and one.copy_id != copy_id:
                if not self.wish.accepts(tp.topic):
                    why = f"its copy was recreated in the target (id {copy_id}, wanted "
                    self._put_aside(tp.topic, f"{why}{one.copy_id}): {HOW_TO_ACCEPT}")
                    continue
                self.warn(f"{tp.topic}-{tp.partition}: its copy was recreated in the target; "
                          "copied from its beginning, as accepted")  # fmt: skip
                fresh.append(tp)
            elif (now := self._named(one, tp.topic, copy_id, known)) != one:
                moved[tp] = now
        for tp, one in self._begin_at(fresh, infos).items():
            moved[tp] = self._named(one, tp.topic, copies[tp.topic], known)
        moved = {tp: one for tp, one in moved.items() if tp.topic not in self.counts.aside}
        if moved:
            self.producer.begin_transaction()
            self._store(moved)

    def _begin_at(
        self, fresh: list[TopicPartition], infos: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, Progress]:
        """Where partitions begin that were not copied before."""
        if not fresh:
            return {}
        places = {tp: self._place(tp) for tp in fresh}
        begins = self.source.list_offsets(dict.fromkeys(fresh, "earliest")).check()
        firsts = self.target.list_offsets(dict.fromkeys(places.values(), "earliest")).check()
        ends = self.target.list_offsets(dict.fromkeys(places.values(), "latest")).check()
        found = {}
        for tp, place in places.items():
            end, begin = ends[place].offset, begins[tp].offset
            before = self._progress.get(tp)
            # A topic recreated in the source, whose loss is accepted, goes on in the same copy.
            same = before is not None and before.topic_id != self._ids[tp.topic] and before.spans
            if end > firsts[place].offset and not same:
                self._put_aside(
                    tp.topic,
                    f"{place.topic}-{place.partition} of the target has records that this mirror "
                    "did not write: delete the topic there, or rename it by --rename",
                )
            found[tp] = losses.again(Progress(id_of(infos[tp.topic]), 0, ()), begin, end)
        return found

    def _place(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self.wish.renamed(tp.topic), tp.partition)

    # ---- settings ----------------------------------------------------------------------

    def _follow_settings(self, names: list[str]) -> None:
        for first in range(0, len(names), SETTINGS_AT_ONCE):
            self._follow_some(names[first : first + SETTINGS_AT_ONCE])

    def _follow_some(self, names: list[str]) -> None:
        source = self.source.describe_configs([("topic", name) for name in names])
        target = self.target.describe_configs([("topic", self.wish.renamed(n)) for n in names])
        for side, found in (("source", source), ("target", target)):
            for resource, problem in found.errors.items():
                self._say_once(
                    f"topic {resource.name!r}: its settings are not followed: the {side}: {problem}"
                )
        for resource, entries in source.done.items():
            if entries.get(POLICY) and "compact" in (entries[POLICY].value or ""):
                self._compacted.add(resource.name)
            name = self.wish.renamed(resource.name)
            there = target.done.get(ConfigResource("topic", name))
            if there is None:
                continue
            made = changes(entries, there)
            for unknown in made.unknown:
                self._say_once(f"topic {name!r}: the target does not know the setting {unknown!r}")
            for setting, value in made.wanted.items():  # one by one, to set those that it accepts
                change = {("topic", name): {setting: value}}
                for problem in self.target.alter_configs(change).errors.values():
                    self._say_once(
                        f"topic {name!r}: the target refuses {setting}={value}: {problem}"
                    )

    # ---- losses ------------------------------------------------------------------------

    def _examine(self, some: list[TopicPartition], doubted: bool = False) -> None:
        """Check that both sides still have what was copied, and fetch on from there; put a topic
        with a loss aside, or continue where the loss begins if it is accepted.

        `doubted`: the fetcher has found that a position is not valid.
        """
        places = {tp: self._place(tp) for tp in some}
        ends = self.target.list_offsets(dict.fromkeys(places.values(), "latest")).check()
        begins = self.source.list_offsets(dict.fromkeys(some, "earliest")).check()
        latest = dict.fromkeys(some, "latest")
        stable = self.source.list_offsets(latest, isolation="read_committed").check()
        epoch_ends = self._epoch_ends(some)
        moved = {}
        for tp, place in places.items():
            one = self._copy_seen(tp, place, ends[place].leader_epoch)
            begin, end = begins[tp].offset, ends[place].offset
            loss = losses.source_loss(
                one, begin, stable[tp].offset, epoch_ends.get(tp), tp.topic in self._compacted
            ) or losses.copy_loss(one, end)
            if loss:
                moved[tp] = self._lost(tp, loss, losses.rewound(one, loss, begin, end))
            elif text := losses.removed(one, begin):
                self.warn(f"{tp.topic}-{tp.partition}: {text}")
                moved[tp] = one._replace(position=begin, epoch=-1)
            elif one.lost:  # accepted since
                moved[tp] = one._replace(lost="")
        moved = {tp: one for tp, one in moved.items() if tp.topic not in self.counts.aside}
        if moved:
            self.producer.begin_transaction()
            self._store(moved)
        for tp in some:
            at, epoch = self._progress[tp].position, self._progress[tp].epoch
            if tp.topic not in self.counts.aside and (
                doubted or self.fetcher.positions.get(tp) != at
            ):
                self.fetcher.seek(tp, at, epoch)

    def _copy_seen(self, tp: TopicPartition, place: TopicPartition, epoch: int) -> Progress:
        """Note the copy's leader epoch; the next commit stores it.

        Raises: a transient failure: a leader of an older epoch answers, which knows less.
        """
        one = self._progress[tp]
        if one.copy_id and 0 <= epoch < one.copy_epoch:
            raise failure(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{place.topic}-{place.partition} of the target",
                f"found leader epoch {epoch}, wanted {one.copy_epoch} or later",
            )
        self._progress[tp] = one._replace(copy_epoch=epoch)
        return self._progress[tp]

    def _epoch_ends(self, some: list[TopicPartition]) -> dict[TopicPartition, EpochEnd]:
        epochs = {tp: one.epoch for tp in some if (one := self._progress[tp]).epoch >= 0}
        if not epochs:
            return {}
        found = epoch_ends(self.cluster, epochs, EPOCHS_MS)
        for problem in found.errors.values():
            if not isinstance(problem, errors.UnsupportedVersion):
                raise problem
            self._say_once(f"the source cannot say whether it has lost records: {problem}")
        return found.done

    def _lost(self, tp: TopicPartition, loss: Loss, wanted: Progress) -> Progress:
        """The progress after a loss, if it is accepted."""
        where = f"partition {tp.partition}: {loss.why}"
        if self.wish.accepts(tp.topic):
            self.warn(
                f"topic {tp.topic!r}, {where}; as accepted, it is copied on from offset "
                f"{wanted.position} of the source"
            )
        else:
            self._put_aside(tp.topic, f"{where}: {HOW_TO_ACCEPT} elsewhere")
        return wanted


def id_of(info: TopicInfo) -> str:
    """Empty if the broker gives none."""
    return str(info.topic_id) if info.topic_id.int else ""
