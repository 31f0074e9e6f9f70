"""The permissions that each API asks for, and what its answer hides, as in Apache Kafka 4.4.0.

An API that is about the cluster has the operation in its route.  Of the others `GUARDS` has a row
each: rules that run in order before the handler.  A rule refuses the whole request, or takes the
items out that the caller may not use, or hides rows of the answer.  Handlers, coordinators and the
controller get a request that is permitted; the answers to refused items join theirs.

Source: KafkaApis, ControllerApis, AuthHelper, ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.metadata.image import BROKER, CLIENT_METRICS, GROUP, INTERNAL_TOPICS, TOPIC
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.server.failed_answers import failed_answer
from kafkalog.server.failures import answer_failure
from kafkalog.server.group_guards import (
    group_operations,
    hidden_members,
    named_topics,
    offsets_refused,
    only_whole,
    share_offsets,
)
from kafkalog.server.handlers.loggers import BROKER_LOGGER
from kafkalog.server.handlers.metadata import IDS_SINCE, creatable, made_on_use
from kafkalog.server.handlers.writers import writer_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID, Rows

if TYPE_CHECKING:
    from kafkalog.server.node import Serving
    from kafkalog.server.request import Request

__all__ = ["GUARDS", "admit"]

Answer = Mapping[str, Any]


class _Denial(NamedTuple):
    code: ErrorCode
    message: str
    """Kafka's."""


_DENIED = {
    Kind.TOPIC: _Denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    Kind.GROUP: _Denial(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    Kind.CLUSTER: _Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    Kind.TRANSACTIONAL_ID: _Denial(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    ),
}
_MISSING = _Denial(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_NO_SUCH_ID = _Denial(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_READ, _WRITE, _CREATE, _DELETE = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE,
)  # fmt: skip
_ALTER, _DESCRIBE, _ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


class _Refused(Exception):
    """The whole request is refused."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.denial = _DENIED[kind]


class _Check:
    """A request between its decoding and its handler."""

    def __init__(self, node: Serving, request: Request) -> None:
        self.node, self.request, self.body = node, request, request.body
        self.refused: dict[str, list[Any]] = {}
        """Rows of the answer for refused items, by list."""
        self.after: list[Callable[[dict[str, Any]], None]] = []
        """Changes of the handler's answer."""
        self.finished = False
        """True if nothing is left for the handler."""

    def allows(
        self, operation: Operation, kind: Kind, name: str = CLUSTER_NAME, *, quiet: bool = False
    ) -> bool:
        """True if the caller may do this.  `quiet`: not logged if it may not."""
        return self.node.admission.allows(self.request.peer, operation, kind, name, quiet=quiet)

    def allowed(
        self, operation: Operation, kind: Kind, names: Iterable[str], *, quiet: bool = False
    ) -> set[str]:
        """Those of the names to which the caller may do this."""
        return self.node.admission.allowed(self.request.peer, operation, kind, names, quiet=quiet)

    def name_of(self, item: Any, field: str) -> str | None:
        """The name of a request's item; None: no topic has its id.  An id goes before a name."""
        topic_id = getattr(item, "topic_id", ZERO_UUID)
        if topic_id != ZERO_UUID:
            return self.node.image.names.get(topic_id)
        name: str | None = item if isinstance(item, str) else getattr(item, field)
        return name

    def cut(self, field: str, items: Iterable[Any], denial: _Denial) -> None:
        """Take these items of a request's list out, and keep the answers that refuse them."""
        gone = list(items)
        if gone:
            refused, part = set(map(id, gone)), copy(self.body)
            left = [one for one in getattr(self.body, field) if id(one) not in refused]
            setattr(self.body, field, left)
            setattr(part, field, gone)
            found = failed_answer(self.request.api, self.request.version, part, *denial) or {}
            self.keep({name: rows for name, rows in found.items() if isinstance(rows, list)})

    def keep(self, rows: Mapping[str, list[Any]]) -> None:
        """Add rows to the answer's lists."""
        for name, some in rows.items():
            self.refused.setdefault(name, []).extend(some)

    def merged(self, answer: Answer) -> Answer:
        """The handler's answer, and what it does not know."""
        whole = dict(answer)
        if not any(isinstance(one, Rows) for one in whole.values()):  # its pieces were changed
            self.change(whole)
        for name, rows in self.refused.items():
            found = whole.get(name)
            if isinstance(found, Rows):
                found += rows
            else:
                whole[name] = [*(found or ()), *rows]
        return whole

    def change(self, answer: dict[str, Any]) -> None:
        """Hide what the caller may not know, of the answer or of a piece of it."""
        for change in self.after:
            change(answer)


Rule = Callable[[_Check], None]


def admit(node: Serving, request: Request, needs: Iterable[tuple[Operation, Kind]]) -> bool:
    """Check a request and cut it down to what its caller may do; False: it has been answered.

    `needs`: those of its route.
    """
    check = _Check(node, request)
    try:
        operations = [one for one, _ in needs]
        for rule in (_cluster(*operations),) if operations else GUARDS[request.api.key]:
            rule(check)
    except _Refused as refused:
        whole = _REFUSED.get(request.api.key)
        found = None if whole is None else whole(request, refused.denial)
        if found is None:
            answer_failure(request, *refused.denial)
        else:
            request.answer(found)
        return False
    if check.refused or check.after:
        request.adjust(check.merged, check.change, cut=bool(check.refused))
    if check.finished:
        request.answer({})
    return not check.finished


# ---- rules ---------------------------------------------------------------------------------


def _cluster(*operations: Operation) -> Rule:
    """One of these operations on the cluster; without the last one, the caller is refused."""
    *others, last = operations

    def rule(check: _Check) -> None:
        permitted = any(check.allows(one, Kind.CLUSTER, quiet=True) for one in others)
        if not permitted and not check.allows(last, Kind.CLUSTER):
            raise _Refused(Kind.CLUSTER)

    return rule


def _whole(operation: Operation, kind: Kind, field: str) -> Rule:
    """The resource that the request names once."""

    def rule(check: _Check) -> None:
        if not check.allows(operation, kind, getattr(check.body, field) or ""):
            raise _Refused(kind)

    return rule


def _each(
    operation: Operation, kind: Kind, field: str, name: str = "name", *, goes_on: bool = False,
    unless: Operation | None = None,
) -> Rule:  # fmt: skip
    """Each item of a request's list.

    `goes_on`: the handler is asked even if no item is left.  `unless`: the operation on the
    cluster that permits all items.
    """

    def rule(check: _Check) -> None:
        items = getattr(check.body, field)
        if not items or (unless and check.allows(unless, Kind.CLUSTER, quiet=True)):
            return
        named = [(item, check.name_of(item, name)) for item in items]
        allowed = check.allowed(operation, kind, {one for _, one in named if one is not None})
        gone = [item for item, one in named if one is not None and one not in allowed]
        check.cut(field, gone, _DENIED[kind])
        check.finished = not goes_on and len(gone) == len(items)

    return rule


def _shown(operation: Operation, kind: Kind, *path: str) -> Rule:
    """The rows of an answer: lists, outermost first, and the field with the name."""
    *outer, inner, field = path

    def rule(check: _Check) -> None:
        def hide(answer: dict[str, Any]) -> None:
            rows = [answer]
            for name in outer:
                rows = [one for row in rows for one in row.get(name) or ()]
            for row in rows:
                _hide(check, operation, kind, row, inner, field)

        check.after.append(hide)

    return rule


def _hide(
    check: _Check, operation: Operation, kind: Kind, row: dict[str, Any], inner: str, field: str
) -> None:  # fmt: skip
    """Leave out of a list what the caller may not know of; not an id that no topic has."""
    if listed := row.get(inner):
        named = [(one, _name(check, one, field)) for one in listed]
        names = {name for _, name in named if name is not None}
        denied = names - check.allowed(operation, kind, names, quiet=True)
        row[inner] = [one for one, name in named if name not in denied]


def _name(check: _Check, row: Mapping[str, Any], field: str) -> str | None:
    """A row's name; an answer that names topics by id has only that."""
    if name := row.get(field):
        return str(name)
    topic_id = row.get("topic_id", ZERO_UUID)
    return "" if topic_id == ZERO_UUID else check.node.image.names.get(topic_id)


def _when(condition: Callable[[Any], bool], rule: Rule, otherwise: Rule | None = None) -> Rule:
    """A rule for some requests, and maybe another for the rest."""

    def chosen(check: _Check) -> None:
        found = rule if condition(check) else otherwise
        if found is not None:
            found(check)

    return chosen


def _since(version: int) -> Callable[[_Check], bool]:
    return lambda check: check.request.version >= version


# ---- rules of single APIs ------------------------------------------------------------------


def _writes_in_transaction(check: _Check) -> bool:
    """True if a Produce belongs to a transaction; its id may be left in one that does not."""
    return check.body.transactional_id is not None and any(
        writer_of(one.records) is not None for topic in check.body.topic_data
        for one in topic.partition_data
    )  # fmt: skip


def _is_follower(check: _Check) -> bool:
    return bool(max(check.body.replica_id, check.body.replica_state.replica_id) >= 0)


def _metadata(check: _Check) -> None:
    """Topics that may not be described look the same whether they exist or not; one that the
    request would create takes CREATE."""
    items, by_id = check.body.topics, check.request.version >= IDS_SINCE
    if not by_id and any(one.name is None for one in items):
        return  # the handler refuses all of it
    for one in items:
        if not by_id:
            one.topic_id = ZERO_UUID  # it has no meaning
    _each(_DESCRIBE, Kind.TOPIC, "topics", goes_on=True)(check)
    for row in check.refused.get("topics", ()):
        if row.get("topic_id", ZERO_UUID) != ZERO_UUID:
            row["name"] = None
    if not (check.body.allow_auto_topic_creation and check.node.config.auto_create_topics_enable):
        return
    there = check.node.image.topics
    new = {one.name for one in check.body.topics if one.topic_id == ZERO_UUID} - there.keys()
    denied = new - creatable(check.node, check.request, filter(made_on_use, new))
    gone = [one for one in check.body.topics if one.name in denied and made_on_use(one.name)]
    check.cut("topics", gone, _DENIED[Kind.TOPIC])
    if check.request.version == 0 and not check.body.topics:  # here an empty list stands for all
        check.after.append(lambda answer: answer.update(topics=[]))


def _offset_fetch(check: _Check) -> None:
    """Several groups, each with topics of its own; if it asks for all, those that may be described
    are the answer."""
    _each(_DESCRIBE, Kind.GROUP, "groups", "group_id")(check)
    for row in check.refused.get("groups", ()):
        row.pop("topics", None)
    refused: dict[str, list[dict[str, Any]]] = {}
    for group in check.body.groups:  # one may be named several times
        rows = refused.setdefault(group.group_id, [])
        named = [(one, check.name_of(one, "name")) for one in group.topics or ()]
        names = {name for _, name in named if name is not None}
        denied = names - check.allowed(_DESCRIBE, Kind.TOPIC, names)
        rows += [offsets_refused(one) for one, name in named if name in denied]
        if denied:
            group.topics = [one for one, name in named if name not in denied]

    def change(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            _hide(check, _DESCRIBE, Kind.TOPIC, row, "topics", "name")
            if not row.get("error_code"):
                row["topics"] = [*(row.get("topics") or ()), *refused[row["group_id"]]]

    check.after.append(change)


def _offset_fetch_of_one(check: _Check) -> None:
    _whole(_DESCRIBE, Kind.GROUP, "group_id")(check)
    if check.body.topics is None:
        _shown(_DESCRIBE, Kind.TOPIC, "topics", "name")(check)
    else:
        _each(_DESCRIBE, Kind.TOPIC, "topics", goes_on=True)(check)


_OF_KEY = {0: (_DESCRIBE, Kind.GROUP), 1: (_DESCRIBE, Kind.TRANSACTIONAL_ID)}
"""The right that FindCoordinator asks for, by key type."""


def _coordinator(check: _Check) -> None:
    if check.body.key_type == 2 and check.request.version >= 6:  # a share partition
        _cluster(_ACTION)(check)
    right = _OF_KEY.get(check.body.key_type)
    if right is not None and check.request.version < 4:
        _whole(*right, "key")(check)
    elif right is not None:
        _each(*right, "coordinator_keys")(check)
        for row in check.refused.get("coordinators", ()):
            row.update(node_id=-1, port=-1)


def _create_topics(check: _Check) -> None:
    """The settings of a new topic are shown to those who may describe them."""
    _each(_CREATE, Kind.TOPIC, "topics", unless=_CREATE)(check)

    def hide(answer: dict[str, Any]) -> None:
        made = [row for row in answer.get("topics") or () if not row.get("error_code")]
        names = {row["name"] for row in made}
        allowed = check.allowed(_DESCRIBE_CONFIGS, Kind.TOPIC, names, quiet=True)
        for row in made:
            if row["name"] not in allowed:
                row.update(
                    topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, configs=None,
                    num_partitions=-1, replication_factor=-1,
                )  # fmt: skip

    check.after.append(hide)


def _delete_topics(check: _Check) -> None:
    """The name of a topic that was given by its id is shown to those who may describe it.

    A node on ZooKeeper forwards with its own rights: an id that only the controller knows yet is
    refused here.
    """
    if check.allows(_DELETE, Kind.CLUSTER, quiet=True):
        return
    image = check.node.image
    field = "topics" if check.request.version >= 6 else "topic_names"
    items = getattr(check.body, field)
    named = [(one, check.name_of(one, "name")) for one in items]
    names = {name for _, name in named if name is not None}
    deleted = check.allowed(_DELETE, Kind.TOPIC, names)
    described = check.allowed(_DESCRIBE, Kind.TOPIC, names, quiet=True)
    missing: list[Any] = []
    denied: list[Any] = []
    if check.node.on_zookeeper:
        unknown_ids = (one for one, name in named if name is None and one.topic_id != ZERO_UUID)
        check.cut(field, unknown_ids, _NO_SUCH_ID)
        for row in check.refused.get("responses", ()):
            row["name"] = None
    for one, name in named:
        given = isinstance(one, str) or one.name is not None
        if name is None or (name in deleted and (name in described or not given)):
            continue  # the controller deletes it, or finds no topic
        unknown = given and name in described and name not in image.topics
        (missing if unknown else denied).append(one)
    check.cut(field, missing, _MISSING)
    check.cut(field, denied, _DENIED[Kind.TOPIC])
    check.finished = bool(items) and not getattr(check.body, field)
    for row in check.refused.get("responses", ()):
        if not row.get("name") and (name := image.names.get(row["topic_id"])) in described:
            row["name"] = name


def _init_producer_id(check: _Check) -> None:
    """Without a transactional id, WRITE on any topic is enough."""
    if check.body.transactional_id is not None:
        _whole(_WRITE, Kind.TRANSACTIONAL_ID, "transactional_id")(check)
    elif not check.node.admission.allows_any(check.request.peer, _WRITE, Kind.TOPIC):
        _cluster(Operation.IDEMPOTENT_WRITE)(check)


def _add_partitions(check: _Check) -> None:
    """All partitions or none: those that might be added are not attempted."""
    field = "v3_and_below_topics"
    _whole(_WRITE, Kind.TRANSACTIONAL_ID, "v3_and_below_transactional_id")(check)
    topics = getattr(check.body, field)
    allowed = check.allowed(_WRITE, Kind.TOPIC, {one.name for one in topics}) - set(INTERNAL_TOPICS)
    gone = [one for one in topics if one.name not in allowed]
    if not gone:
        return
    check.cut(field, gone, _DENIED[Kind.TOPIC])

    def not_attempted(topic: str, index: int) -> ErrorCode:
        there = check.node.image.partition(topic, index) is not None
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    rest = [
        {"name": one.name, "results_by_partition": [
            {"partition_index": index, "partition_error_code": not_attempted(one.name, index)}
            for index in one.partitions]}
        for one in getattr(check.body, field)
    ]  # fmt: skip
    check.keep({"results_by_topic_v3_and_below": rest})
    check.finished = True


_OF_RESOURCE = {
    TOPIC: Kind.TOPIC,
    GROUP: Kind.GROUP,
    BROKER: Kind.CLUSTER,
    BROKER_LOGGER: Kind.CLUSTER,
    CLIENT_METRICS: Kind.CLUSTER,
}
"""The kind of permission that protects the settings of each kind of resource."""


def _settings(operation: Operation) -> Rule:
    """The settings of topics and groups, and of the cluster for all else."""

    def rule(check: _Check) -> None:
        items = list(check.body.resources)
        gone: dict[Kind, list[Any]] = {}
        for item in items:
            kind = _OF_RESOURCE.get(item.resource_type)
            if kind is not None:
                name = CLUSTER_NAME if kind is Kind.CLUSTER else item.resource_name
                if not check.allows(operation, kind, name):
                    gone.setdefault(kind, []).append(item)
        for kind, some in gone.items():
            check.cut("resources", some, _DENIED[kind])
        check.finished = bool(items) and not check.body.resources

    return rule


def _heartbeat(check: _Check) -> None:
    """All topics that a member or its topology names, or none."""
    if not named_topics(check):
        raise _Refused(Kind.TOPIC)


# ---- refusals that differ from other APIs' -------------------------------------------------


def _code_only(request: Request, denial: _Denial) -> Answer:
    named = {"error_code": denial.code, "error_message": denial.message}
    fields = {field.name for field in request.api.response.fields}
    return {name: value for name, value in named.items() if name in fields}


def _offsets_of_one(request: Request, denial: _Denial) -> Answer | None:
    """In version 1, only partitions have a code."""
    return {"error_code": denial.code} if request.version > 1 else None


def _of_brokers(request: Request, denial: _Denial) -> Answer | None:
    """AddPartitionsToTxn: versions for clients have no code for the whole."""
    return {"error_code": denial.code} if request.version >= 4 else None


def _reassignments(request: Request, denial: _Denial) -> Answer:
    topics = [
        {"name": one.name, "partitions": [{"partition_index": i} for i in one.partition_indexes]}
        for one in request.body.topics or ()
    ]
    return {**_code_only(request, denial), "topics": topics}


def _users(request: Request, denial: _Denial) -> Answer:
    """One row for each user, without the name."""
    row = _code_only(request, denial)
    return {**row, "results": [row] * len(request.body.users or ())}


_REFUSED: Mapping[int, Callable[[Request, _Denial], Answer | None]] = {
    apis.ADD_PARTITIONS_TO_TXN.key: _of_brokers,
    apis.DESCRIBE_LOG_DIRS.key: _code_only,
    apis.DESCRIBE_QUORUM.key: _code_only,
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS.key: _users,
    apis.LEAVE_GROUP.key: _code_only,
    apis.OFFSET_DELETE.key: _code_only,
    apis.ALTER_SHARE_GROUP_OFFSETS.key: _code_only,
    apis.DELETE_SHARE_GROUP_OFFSETS.key: _code_only,
    apis.UPDATE_FEATURES.key: _code_only,
    apis.OFFSET_FETCH.key: _offsets_of_one,
    apis.LIST_PARTITION_REASSIGNMENTS.key: _reassignments,
}


# ---- the table -----------------------------------------------------------------------------

_T, _G, _ID = Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID

_ROWS: tuple[tuple[Any, ...], ...] = (
    (apis.PRODUCE, _when(_writes_in_transaction, _whole(_WRITE, _ID, "transactional_id")),
     _each(_WRITE, _T, "topic_data", goes_on=True)),
    (apis.FETCH, _when(lambda check: not _is_follower(check),
                       _each(_READ, _T, "topics", "topic", goes_on=True))),
    (apis.LIST_OFFSETS, _each(_DESCRIBE, _T, "topics")),
    (apis.METADATA, _when(lambda check: bool(check.body.topics), _metadata)),
    (apis.OFFSET_COMMIT, _whole(_READ, _G, "group_id"), _each(_READ, _T, "topics")),
    (apis.OFFSET_FETCH, _when(_since(8), _offset_fetch, _offset_fetch_of_one)),
    (apis.FIND_COORDINATOR, _coordinator),
    *((api, _whole(_READ, _G, "group_id"))
      for api in (apis.JOIN_GROUP, apis.SYNC_GROUP, apis.HEARTBEAT, apis.LEAVE_GROUP)),
    (apis.DESCRIBE_GROUPS, _each(_DESCRIBE, _G, "groups"), group_operations),
    *((api, _whole(_READ, _G, "group_id"), _heartbeat) for api in (
        apis.CONSUMER_GROUP_HEARTBEAT, apis.SHARE_GROUP_HEARTBEAT, apis.STREAMS_GROUP_HEARTBEAT)),
    *((api, _each(_DESCRIBE, _G, "group_ids"), hidden_members, group_operations) for api in (
        apis.CONSUMER_GROUP_DESCRIBE, apis.SHARE_GROUP_DESCRIBE, apis.STREAMS_GROUP_DESCRIBE)),
    (apis.DESCRIBE_SHARE_GROUP_OFFSETS, _each(_DESCRIBE, _G, "groups", "group_id"),
     share_offsets),
    (apis.ALTER_SHARE_GROUP_OFFSETS, _whole(_READ, _G, "group_id"),
     _each(_READ, _T, "topics", "topic_name", goes_on=True), only_whole),
    (apis.DELETE_SHARE_GROUP_OFFSETS, _whole(_DELETE, _G, "group_id"),
     _each(_READ, _T, "topics", "topic_name", goes_on=True), only_whole),
    (apis.LIST_GROUPS, _when(lambda check: not check.allows(_DESCRIBE, Kind.CLUSTER, quiet=True),
                             _shown(_DESCRIBE, _G, "groups", "group_id"))),
    (apis.DELETE_GROUPS, _each(_DELETE, _G, "groups_names")),
    (apis.OFFSET_DELETE, _whole(_DELETE, _G, "group_id"), _each(_READ, _T, "topics")),
    # Their handlers check each topic: those of a session, too.
    *((api, _whole(_READ, _G, "group_id")) for api in (apis.SHARE_FETCH, apis.SHARE_ACKNOWLEDGE)),
    (apis.API_VERSIONS,), (apis.SASL_HANDSHAKE,), (apis.SASL_AUTHENTICATE,),
    (apis.CREATE_TOPICS, _create_topics),
    (apis.DELETE_TOPICS, _delete_topics),
    (apis.CREATE_PARTITIONS, _each(_ALTER, _T, "topics")),
    (apis.DELETE_RECORDS, _each(_DELETE, _T, "topics")),
    (apis.OFFSET_FOR_LEADER_EPOCH,
     _each(_DESCRIBE, _T, "topics", "topic", unless=_ACTION)),
    (apis.DESCRIBE_PRODUCERS, _each(_READ, _T, "topics")),
    (apis.DESCRIBE_TOPIC_PARTITIONS, _each(_DESCRIBE, _T, "topics")),
    (apis.INIT_PRODUCER_ID, _init_producer_id),
    (apis.ADD_PARTITIONS_TO_TXN, _when(_since(4), _cluster(_ACTION), _add_partitions)),
    (apis.ADD_OFFSETS_TO_TXN, _whole(_WRITE, _ID, "transactional_id"),
     _whole(_READ, _G, "group_id")),
    (apis.END_TXN, _whole(_WRITE, _ID, "transactional_id")),
    (apis.TXN_OFFSET_COMMIT, _whole(_WRITE, _ID, "transactional_id"),
     _whole(_READ, _G, "group_id"), _each(_READ, _T, "topics")),
    (apis.DESCRIBE_TRANSACTIONS, _each(_DESCRIBE, _ID, "transactional_ids"),
     _shown(_DESCRIBE, _T, "transaction_states", "topics", "topic")),
    (apis.LIST_TRANSACTIONS,
     _shown(_DESCRIBE, _ID, "transaction_states", "transactional_id")),
    (apis.DESCRIBE_CONFIGS, _settings(_DESCRIBE_CONFIGS)),
    (apis.ALTER_CONFIGS, _settings(_ALTER_CONFIGS)),
    (apis.INCREMENTAL_ALTER_CONFIGS, _settings(_ALTER_CONFIGS)),
    # DescribeCluster shows everyone the brokers, and the operations that it may do.
    (apis.DESCRIBE_CLUSTER,),
    # Everyone may send metrics: whose are wanted, the subscriptions say.
    (apis.GET_TELEMETRY_SUBSCRIPTIONS,), (apis.PUSH_TELEMETRY,),
    # The handlers check each token.
    (apis.CREATE_DELEGATION_TOKEN,), (apis.RENEW_DELEGATION_TOKEN,),
    (apis.EXPIRE_DELEGATION_TOKEN,), (apis.DESCRIBE_DELEGATION_TOKEN,),
)  # fmt: skip
GUARDS: Mapping[int, tuple[Rule, ...]] = {api.key: tuple(rules) for api, *rules in _ROWS}
"""By API key: the APIs that name single resources, or ask for nothing.

If Metadata and DescribeTopicPartitions ask for all topics, their handlers look only at those that
may be described."""
