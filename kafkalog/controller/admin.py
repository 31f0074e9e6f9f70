"""Creates, enlarges and deletes topics for clients: CreateTopics, CreatePartitions, DeleteTopics.

Steps, as defined in kafkalog.controller.active; `topic_rules` decides.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from kafkalog.controller import deletion, topics
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.context import unclean_of
from kafkalog.controller.placement import Start, place
from kafkalog.controller.records import (
    PartitionsCreation,
    TopicCreation,
    TopicDeletion,
)
from kafkalog.controller.topic_rules import (
    Cluster,
    Decision,
    create_partitions,
    create_topics,
    delete_topics,
    error_fields,
)
from kafkalog.metadata import translation
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import Topic
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["answer_create_partitions", "answer_create_topics", "answer_delete_topics"]

CHANGED = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "The topic has changed since: try again.")
Body = dict[str, Any]


def _cluster(active: Active, enlarged: Collection[str] = ()) -> Cluster:
    context, config = active.context, active.options.config
    racks = {number: one.rack for number, one in sorted(context.brokers.items())}

    def placed(count: int, factor: int, start: Start | None) -> list[tuple[int, ...]]:
        return place(racks, count, factor, active.random, start)

    return Cluster(
        active.known(enlarged), config, list(racks), placed,
        factor_default=int(config.get("default.replication.factor", 1)),
        deleted=context.deleted, deletes=active.options.deletes,
        zookeeper=True,
        problem=lambda record: active.store.problem(context, record),
        new_id=active.new_id, charge=active.caller.charge,
    )  # fmt: skip


def _topic(name: str, topic_id: uuid.UUID, replicas: Mapping[int, tuple[int, ...]]) -> Topic:
    """A topic's new partitions."""
    partitions = {number: topics.never_led(number, one) for number, one in replicas.items()}
    return Topic(name, topic_id, partitions)


def _results(decision: Decision, failed: Mapping[str, Refused]) -> list[Body]:
    """The results, with the errors of records that were not written."""
    return [
        {"name": one["name"], **error_fields(failed[one["name"]])} if one["name"] in failed else one
        for one in decision.results
    ]


def answer_create_topics(active: Active, request: Any, version: int) -> Steps[Body]:
    """CreateTopics."""
    context = active.context
    decision = create_topics(_cluster(active), translation.new_topics(request))
    outcomes = yield decision.records
    created: list[Topic] = []
    failed: dict[str, Refused] = {}
    for one, outcome in zip(decision.records, outcomes, strict=True):
        assert isinstance(one, TopicCreation)
        if outcome.done:
            created.append(_topic(one.name, one.topic_id, one.replicas))
            context.set_unclean(one.name, unclean_of(one.settings))
        else:
            failed[one.name] = Refused(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{one.name}' already exists."
            )
    yield from topics.topics_changed(context, active.batch, created)
    return {"topics": _results(decision, failed)}


def answer_create_partitions(active: Active, request: Any, version: int) -> Steps[Body]:
    """CreatePartitions."""
    context = active.context
    asked = translation.more_partitions(request)
    cluster = _cluster(active, {one.name for one in asked.topics})
    decision = create_partitions(cluster, asked)
    outcomes = yield decision.records
    created: list[Topic] = []
    failed: dict[str, Refused] = {}
    for one, outcome in zip(decision.records, outcomes, strict=True):
        assert isinstance(one, PartitionsCreation)
        if outcome.done:
            created.append(_topic(one.topic, context.ids[one.topic], one.replicas))
        else:
            failed[one.topic] = CHANGED
    yield from topics.topics_changed(context, active.batch, created)
    return {"results": _results(decision, failed)}


def answer_delete_topics(active: Active, request: Any, version: int) -> Steps[Body]:
    """DeleteTopics: the topics are being deleted from now on, and are gone once every broker has
    dropped them."""
    decision = delete_topics(_cluster(active), translation.deleted_topics(request))
    yield decision.records  # a request that exists already is as good
    names = [one.topic for one in decision.records if isinstance(one, TopicDeletion)]
    if names:
        yield from deletion.topics_to_delete(active.context, active.batch, names)
    return {"responses": decision.results}
