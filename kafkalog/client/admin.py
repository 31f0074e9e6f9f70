"""`kafkalog.Admin`: inspects a cluster and changes it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from kafkalog import arguments
from kafkalog.arguments import INT16_MAX, INT32_MAX, INT64_MAX, whole_number
from kafkalog.client.admin_acls import AdminAcls
from kafkalog.client.admin_nodes import AdminNodes
from kafkalog.client.admin_share_groups import AdminShareGroups
from kafkalog.client.admin_streams_groups import AdminStreamsGroups
from kafkalog.client.admin_users import AdminUsers
from kafkalog.client.calls import configs, groups, offsets, replicas
from kafkalog.client.calls import topics as topics_
from kafkalog.client.calls import transactions as transactions_
from kafkalog.client.calls.arguments import (
    change_of,
    committed_of,
    new_topic,
    resource_of,
    time_of,
)  # fmt: skip
from kafkalog.client.calls.results import Results, only
from kafkalog.client.consumer.settings import client_options
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import answering
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.client.link.transport import Where
from kafkalog.client.login.tokens import TokenSource
from kafkalog.client.telemetry.payload import Figures, of_owner
from kafkalog.client.telemetry.pushing import Pushing
from kafkalog.clock import Clock
from kafkalog.config.admin import AdminConfig
from kafkalog.types import FoundOffset, TopicPartition

__all__ = ["Admin"]

Tp = TypeVar("Tp", bound=tuple[str, int])
Resource = TypeVar("Resource", bound=tuple[str, str])
ISOLATIONS = ("read_uncommitted", "read_committed")


class Admin(AdminNodes, AdminUsers, AdminAcls, AdminShareGroups, AdminStreamsGroups):
    """Administers topics, settings, groups, offsets, transactions and nodes of a cluster.

    A call about many things returns `Results`: the result of each.  Looking up a thing that failed
    raises its failure, `.check()` raises the first one.  Every call takes at most `timeout_ms`, or
    `default.api.timeout.ms`, and retries transient failures until then.  You may pass a plain tuple
    wherever a type of this package is named.

    Safe to use from many threads, one call at a time.  A context manager.
    """

    def __init__(
        self,
        where: Where,
        *,
        client_id: str | None = None,
        request_timeout_ms: int | None = None,
        api_timeout_ms: int | None = None,
        config: Mapping[str, object] | None = None,
        oauth_token: TokenSource | None = None,
        clock: Clock | None = None,
        controllers: bool = False,
    ) -> None:
        """Nothing is sent yet.

        `where`: `host:port`, several with commas, or a store; `controllers`: those of a KRaft
        cluster, not brokers (KIP-919).  `config` takes Kafka's names (see
        docs/client-options.md); the arguments override it.  `oauth_token`: docs/clients.md.

        Raises: ArgumentError, UnknownSetting, InvalidSetting, Closed.
        """
        named = {
            "client.id": client_id, "request.timeout.ms": request_timeout_ms,
            "default.api.timeout.ms": api_timeout_ms,
        }  # fmt: skip
        named = {key: value for key, value in named.items() if value is not None}
        made = AdminConfig({**arguments.mapping("config", config or {}), **named})
        options = client_options(made, oauth_token)
        options = options._replace(controllers=arguments.flag("controllers", controllers))
        super().__init__(Cluster(where, options, clock))
        self._pushing = Pushing(self._cluster, "admin-client", of_owner(self))
        weakref.finalize(self, self._pushing.stop)

    def close(self) -> None:
        """Send the last metrics, if a broker wants them, and close the connections, after a call of
        another thread has ended.  Idempotent; a forked child only marks it closed."""
        if self._pid == os.getpid():
            with self._lock:
                if not self._closed:
                    self._pushing.end(self._cluster)
        super().close()

    def _begins(self) -> None:
        if self._cluster.patience.due:
            left_s = self._cluster.patience.left_s()
            with self._cluster.patience.whole(left_s, answering):
                self._pushing.reporter.settle(self._cluster, left_s)

    def _called(self) -> None:
        with self._cluster.patience.whole(0, answering):
            self._pushing.look(self._cluster)

    def _figures(self) -> Figures:
        mine, other = self._cluster, self._pushing.cluster
        opened = mine.openings.count + other.openings.count
        times = dict(mine.openings.times)
        nodes = {node: times[at] for node, at in list(mine.nodes.items()) if at in times}
        return Figures({"connection-creation-total": float(opened)}, nodes)

    def _labels(self) -> dict[str, str]:
        return {}

    def client_instance_id(self, timeout_ms: int | None = None) -> UUID:
        """As Consumer.client_instance_id."""
        return self._ask(self._pushing.reporter.instance_id, timeout_ms=timeout_ms)

    def list_topics(self, internal: bool = False, timeout_ms: int | None = None) -> list[str]:
        """The names of all topics, sorted; `internal`: Kafka's own topics, too."""
        some = arguments.flag("internal", internal)
        return self._ask(topics_.list_topics, some, timeout_ms=timeout_ms)

    def describe_topics(
        self, names: Iterable[str] | None, timeout_ms: int | None = None
    ) -> Results[str, TopicInfo]:
        """Topics and their partitions; None: of all topics, internal ones included, by one request.
        Waits a moment for an unknown topic.

        Failures: UnknownTopicOrPartition, InvalidTopic.
        """
        wanted = None if names is None else arguments.texts("names", names)
        return self._ask(topics_.describe_topics, wanted, timeout_ms=timeout_ms)

    def create_topics(
        self,
        topics: Iterable[str | topics_.NewTopic | tuple[object, ...]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, topics_.CreatedTopic]:
        """Create topics: names, or NewTopic(name, partitions, replication_factor, config,
        assignment); `validate_only`: only check whether they could be created.

        Failures: TopicExists, InvalidTopic, InvalidSetting, InvalidPartitions, ...
        """
        wanted = [new_topic("topics", one) for one in arguments.things("topics", topics)]
        return self._ask(
            topics_.create_topics,
            wanted,
            arguments.flag("validate_only", validate_only),
            timeout_ms=timeout_ms,
        )

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> topics_.CreatedTopic:
        """`create_topics` of one; -1: the broker's default.  Raises: its failure."""
        one = (name, partitions, replication_factor, {} if config is None else config)
        found = self.create_topics([one], validate_only=validate_only, timeout_ms=timeout_ms)
        return only(found)

    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: int | None = None
    ) -> Results[str | UUID, None]:
        """Delete topics, by name or by id, with their records.

        Failures: UnknownTopicOrPartition, UnknownTopicId, TopicDeletionDisabled, ...
        """
        wanted = [
            one if isinstance(one, UUID) else arguments.text("topics", one)
            for one in arguments.things("topics", topics)
        ]
        return self._ask(topics_.delete_topics, wanted, timeout_ms=timeout_ms)

    def delete_topic(self, name: str, timeout_ms: int | None = None) -> None:
        """`delete_topics` of one.  Raises: its failure."""
        only(self.delete_topics([arguments.text("name", name)], timeout_ms))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Increase topics to this many partitions; `assignments`: the nodes of each new one.

        Failures: UnknownTopicOrPartition, InvalidPartitions (not more than there are), ...
        """
        wanted = {
            arguments.text("counts", name): whole_number("counts", count, 0, INT32_MAX)
            for name, count in arguments.mapping("counts", counts).items()
        }
        placed = {
            arguments.text("assignments", name): [
                arguments.nodes("assignments", one) for one in arguments.things("assignments", some)
            ]
            for name, some in arguments.mapping("assignments", assignments or {}).items()
        }
        return self._ask(
            topics_.create_partitions,
            wanted,
            placed,
            arguments.flag("validate_only", validate_only),
            timeout_ms=timeout_ms,
        )

    # ---- records and offsets -----------------------------------------------------------

    def delete_records(
        self, before: Mapping[Tp, int], timeout_ms: int | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset, -1: before the high watermark.  Returns the new
        start of each log.

        Failures: UnknownTopicOrPartition, OffsetOutOfRange, PolicyViolation (a topic that is
        only compacted), ...
        """
        wanted = {
            arguments.partition("before", tp): whole_number("before", offset, -1, INT64_MAX)
            for tp, offset in arguments.mapping("before", before).items()
        }
        return self._ask(offsets.delete_records, wanted, timeout_ms=timeout_ms)

    def list_offsets(
        self,
        times: Mapping[Tp, int | str],
        *,
        isolation: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, FoundOffset]:
        """By partition, the offset of `earliest`, `latest`, `max_timestamp`, `earliest_local`,
        `latest_tiered`, or of the first record at or after a time (ms since 1970), -1 if there is
        none.  With `read_committed`, `latest` is the last stable offset.

        Failures: UnknownTopicOrPartition, UnsupportedVersion (a broker before 3.0 has only the
        first two), ...
        """
        wanted = {
            arguments.partition("times", tp): time_of("times", when)
            for tp, when in arguments.mapping("times", times).items()
        }
        committed = arguments.one_of("isolation", isolation, ISOLATIONS) == ISOLATIONS[1]
        return self._ask(offsets.find_offsets, wanted, committed, timeout_ms=timeout_ms)

    # ---- settings ----------------------------------------------------------------------

    def describe_configs(
        self,
        resources: Iterable[tuple[str, str]],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[configs.ConfigResource, dict[str, configs.ConfigEntry]]:
        """The settings of ("topic", name), ("broker", "1"), ("broker", "") (the default of all
        brokers), ("group", name), ...; `names`: only these.

        Failures: UnknownTopicOrPartition, ArgumentError (no such broker), ...
        """
        wanted = [resource_of("resources", one) for one in arguments.things("resources", resources)]
        return self._ask(
            configs.describe_configs,
            wanted,
            None if names is None else arguments.texts("names", names),
            arguments.flag("documentation", documentation),
            timeout_ms=timeout_ms,
        )

    def alter_configs(
        self,
        changes: Mapping[Resource, Mapping[str, object]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[configs.ConfigResource, None]:
        """Change some settings of each resource, atomically per resource: a value, None for the
        default, or ("append", value), ("subtract", value) for a setting that is a list.

        Failures: UnknownTopicOrPartition, InvalidSetting, ArgumentError (no such broker), ...
        """
        wanted = {
            resource_of("changes", resource): {
                arguments.text("changes", name): change_of("changes", value)
                for name, value in arguments.mapping("changes", some).items()
            }
            for resource, some in arguments.mapping("changes", changes).items()
        }
        return self._ask(
            configs.alter_configs,
            wanted,
            arguments.flag("validate_only", validate_only),
            timeout_ms=timeout_ms,
        )

    def list_config_resources(
        self, kinds: Iterable[str] = (), timeout_ms: int | None = None
    ) -> list[configs.ConfigResource]:
        """The resources with settings, sorted; `kinds`: only these; empty: all.

        Raises: UnsupportedVersion for a broker before 4.1, which only lists client_metrics; what
        the broker answers.
        """
        wanted = [
            arguments.one_of("kinds", kind, configs.KINDS)
            for kind in arguments.things("kinds", kinds)
        ]
        return self._ask(configs.list_config_resources, wanted, timeout_ms=timeout_ms)

    # ---- groups ------------------------------------------------------------------------

    def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        kinds: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[groups.GroupListing]:
        """The groups of every node, sorted by name; with `states` (Stable, Empty, ...) or `kinds`
        (classic, consumer, ...): only those.
        """
        some = arguments.texts("states", states), arguments.texts("kinds", kinds)
        return self._ask(groups.list_groups, *some, timeout_ms=timeout_ms)

    def describe_groups(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, groups.GroupInfo]:
        """Groups and their members; the state of an unknown group is Dead."""
        wanted = arguments.texts("names", names)
        return self._ask(groups.describe_groups, wanted, timeout_ms=timeout_ms)

    def delete_groups(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Remove groups that have no members, with their offsets.

        Failures: GroupIdNotFound, NonEmptyGroup, ...
        """
        wanted = arguments.texts("names", names)
        return self._ask(groups.delete_groups, wanted, timeout_ms=timeout_ms)

    def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, groups.CommittedOffset]:
        """The offsets that a group has committed; `partitions` None: all.  A partition without
        a committed offset is left out.

        Raises: what the broker answers.
        """
        wanted = None if partitions is None else arguments.partitions("partitions", partitions)
        name = arguments.text("group", group)
        return self._ask(groups.committed_offsets, name, wanted, timeout_ms=timeout_ms)

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[Tp, int | groups.CommittedOffset],
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group that has no members.

        Failures: UnknownMemberId (it has members), UnknownTopicOrPartition, ...
        """
        wanted = {
            arguments.partition("offsets", tp): committed_of("offsets", one)
            for tp, one in arguments.mapping("offsets", offsets).items()
        }
        name = arguments.text("group", group)
        return self._ask(groups.put_offsets, name, wanted, timeout_ms=timeout_ms)

    def delete_group_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]], timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Delete a group's committed offsets for partitions of topics that no member reads.

        Failures: GroupIdNotFound, GroupSubscribedToTopic, ...
        """
        return self._ask(
            groups.delete_offsets,
            arguments.text("group", group),
            arguments.partitions("partitions", partitions),
            timeout_ms=timeout_ms,
        )

    def remove_group_members(
        self,
        group: str,
        instances: Iterable[str] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Remove the static members with these instance ids from a group; None: all members,
        those without such an id by their member id.

        Failures: UnknownMemberId, ...
        """
        return self._ask(
            groups.remove_members,
            arguments.text("group", group),
            None if instances is None else arguments.texts("instances", instances),
            arguments.text("reason", reason),
            timeout_ms=timeout_ms,
        )

    # ---- transactions ------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        producer_ids: Collection[int] = (),
        states: Iterable[str] = (),
        longer_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[transactions_.TransactionListing]:
        """The transactional ids of every coordinator, sorted by name: only those of these
        producers, in these states, whose transaction began longer ago than `longer_ms`, whose
        whole name matches the regular expression `pattern`.

        Raises: UnsupportedVersion: `longer_ms` for a broker before 3.8, `pattern` before 4.1.
        """
        ids = [
            whole_number("producer_ids", one, 0)
            for one in arguments.things("producer_ids", producer_ids)
        ]
        longer = -1 if longer_ms is None else whole_number("longer_ms", longer_ms, 0)
        like = None if pattern is None else arguments.text("pattern", pattern)
        some = arguments.texts("states", states)
        given = ids, longer, like, some
        return self._ask(transactions_.list_transactions, *given, timeout_ms=timeout_ms)

    def describe_transactions(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, transactions_.TransactionInfo]:
        """The coordinators' view of transactional ids.  Failures: TransactionalIdNotFound, ..."""
        wanted = arguments.texts("names", names)
        return self._ask(transactions_.describe_transactions, wanted, timeout_ms=timeout_ms)

    def fence_producers(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, transactions_.FencedProducer]:
        """Begin a new epoch of transactional ids: fence their producers, and abort their open
        transactions.
        """
        wanted = arguments.texts("names", names)
        return self._ask(transactions_.fence_producers, wanted, timeout_ms=timeout_ms)

    def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
        timeout_ms: int | None = None,
    ) -> None:
        """Abort a transaction in one partition, whatever its coordinator knows of it.

        Raises: UnknownTopicOrPartition; InvalidProducerEpoch and TransactionCoordinatorFenced:
        the partition knows a later epoch; what a broker answers.
        """
        self._ask(
            transactions_.abort_transaction, arguments.partition("partition", partition),
            whole_number("producer_id", producer_id, 0),
            whole_number("producer_epoch", producer_epoch, 0, INT16_MAX),
            whole_number("coordinator_epoch", coordinator_epoch, -1, INT32_MAX),
            timeout_ms=timeout_ms,
        )  # fmt: skip

    def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        age_ms: int = 900_000,
        node: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[transactions_.HangingTransaction]:
        """Transactions that are open in a partition, last wrote at least `age_ms` ago, and that no
        coordinator has open there.  `node`: look at this node's replicas; None: at the leaders.

        Raises: UnknownTopicOrPartition; what a broker answers.
        """
        return self._ask(
            transactions_.find_hanging,
            arguments.partitions("partitions", partitions),
            whole_number("age_ms", age_ms, 0),
            None if node is None else arguments.node("node", node),
            timeout_ms=timeout_ms,
        )

    def describe_producers(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        node: int | None = None,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, list[transactions_.ProducerInfo]]:
        """The producers that partitions remember; `node`: ask this one, None: their leaders.

        Failures: UnknownTopicOrPartition, ...
        """
        return self._ask(
            transactions_.describe_producers,
            arguments.partitions("partitions", partitions),
            None if node is None else arguments.node("node", node),
            timeout_ms=timeout_ms,
        )

    # ---- replicas ----------------------------------------------------------------------

    def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        kind: str = "preferred",
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders of partitions: the preferred one, or (unclean) any live one, which may
        lack records.

        Failures: ElectionNotNeeded (the right one leads), UnknownTopicOrPartition, ...
        """
        word = arguments.one_of("kind", kind, replicas.ELECTIONS)
        return self._ask(
            replicas.elect_leaders,
            word,
            arguments.partitions("partitions", partitions),
            timeout_ms=timeout_ms,
        )

    def alter_partition_reassignments(
        self,
        places: Mapping[Tp, Sequence[int] | None],
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Start moving partitions to nodes, the first of which will lead; None: cancel a move
        that was started.

        Failures: InvalidReplicaAssignment, NoReassignmentInProgress, ...
        """
        wanted = {
            arguments.partition("places", tp): None
            if some is None
            else arguments.nodes("places", some)
            for tp, some in arguments.mapping("places", places).items()
        }
        return self._ask(replicas.reassign_partitions, wanted, timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, replicas.Reassignment]:
        """The partitions that are being moved, sorted; `partitions`: only these."""
        some = None if partitions is None else arguments.partitions("partitions", partitions)
        return self._ask(replicas.list_reassignments, some, timeout_ms=timeout_ms)
