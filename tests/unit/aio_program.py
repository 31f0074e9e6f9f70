"""A user's program with every call of the asyncio clients, for a type checker: it is not run.

Mistakes that a user may make are marked; a mark without a mistake is an error, too.
"""

from __future__ import annotations

from uuid import UUID

from kafkalog import (
    AclBinding,
    AclBindingFilter,
    CommittedOffset,
    CreatedTopic,
    FoundOffset,
    GroupMetadata,
    ManyFuture,
    PartitionInfo,
    RaftVoterEndpoint,
    Record,
    RecordMetadata,
    Results,
    ScanBatch,
    SharedRecord,
    StreamsGroupInfo,
    TopicPartition,
    aio,
)

TP = TopicPartition("t", 0)


async def share_groups(admin: aio.Admin) -> None:
    await admin.list_share_group_offsets("g")
    await admin.alter_share_group_offsets("g", {TP: 1})
    await admin.delete_share_group_offsets("g", ["t"])
    streams: StreamsGroupInfo = (await admin.describe_streams_groups(["g"]))["g"]
    assert streams.group


async def administrate() -> None:
    async with aio.Admin("h:1", client_id="me") as admin:
        names: list[str] = await admin.list_topics(internal=True, timeout_ms=1_000)
        made: Results[str, CreatedTopic] = await admin.create_topics(["t", ("u", 3)])
        topic_id: UUID = made["t"].topic_id
        await admin.create_topic("t", 3)
        await admin.create_partitions({"t": 4})
        await admin.describe_topics(names)
        await admin.delete_records({TP: 3})
        await admin.delete_topics(["t"])
        await admin.delete_topic("t")
        await admin.alter_configs({("topic", "t"): {"retention.ms": 1}})
        await admin.describe_configs([("topic", "t")])
        await admin.list_config_resources()
        await admin.list_groups()
        await admin.describe_groups(["g"])
        await admin.list_group_offsets("g")
        await admin.alter_group_offsets("g", {TP: 1})
        await admin.delete_group_offsets("g", [TP])
        await share_groups(admin)
        await admin.remove_group_members("g")
        await admin.delete_groups(["g"])
        await admin.list_offsets({TP: -1})
        await admin.describe_cluster()
        await admin.describe_quorum()
        await admin.unregister_broker(7)
        await admin.unregister_controller(7)
        await admin.add_raft_voter(7, UUID(int=7), [RaftVoterEndpoint("CONTROLLER", "h", 9093)])
        await admin.remove_raft_voter(7, UUID(int=7), cluster_id="c")
        await admin.describe_features()
        await admin.update_features({"transaction.version": 2})
        await admin.create_acls([AclBinding("topic", "t", "User:alice", "read")])
        acls: tuple[AclBinding, ...] = await admin.describe_acls()
        await admin.delete_acls([AclBindingFilter(name=acls[0].name)])
        await admin.alter_client_quotas({(("user", "alice"),): {"producer_byte_rate": 1.0}})
        quotas = await admin.describe_client_quotas({"user": "alice"})
        rate: float = quotas[(("user", "alice"),)]["producer_byte_rate"]
        await admin.alter_user_scram_credentials([("alice", "SCRAM-SHA-256", "secret")])
        await admin.describe_user_scram_credentials(["alice"])
        token = await admin.create_delegation_token(["User:bob"])
        await admin.renew_delegation_token(token.hmac)
        await admin.expire_delegation_token(token.hmac)
        await admin.describe_delegation_tokens()
        await admin.describe_log_dirs()
        await admin.move_replicas({})
        await admin.elect_leaders([TP])
        await admin.alter_partition_reassignments({TP: [1]})
        await admin.list_partition_reassignments()
        await admin.describe_producers([TP])
        await admin.list_transactions()
        await admin.describe_transactions(["x"])
        await admin.abort_transaction(TP, 1, 0)
        await admin.fence_producers(["x"])
        await admin.find_hanging_transactions([TP])
        await admin.close()
        over: bool = admin.closed
    print(topic_id, over, rate)
    await admin.list_topics(internl=True)  # type: ignore[call-arg]
    await admin.list_topic()  # type: ignore[attr-defined]
    aio.Admin()  # type: ignore[call-arg]


async def produce() -> None:
    async with aio.Producer("h:1", linger_ms=5, transactional_id="x") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        done: RecordMetadata = await producer.send("t", b"v", b"k", headers=[("h", b"v")])
        many: ManyFuture = await producer.send_many("t", [b"a", None])
        await producer.send_batches("t", b"")
        await producer.send_offsets({TP: 1}, "g")
        await producer.flush(timeout_ms=1_000)
        await producer.commit_transaction()
        async with producer.transaction() as same:
            await same.send("t", b"v")
        await producer.abort_transaction()
        await producer.check()
        sent: dict[str, float] = await producer.metrics()
        instance: UUID = await producer.client_instance_id(timeout_ms=5)
        count: int = await producer.partitions("t")
        number: int = producer.producer_id
        doubt: bool = producer.in_doubt
        await producer.close(timeout_ms=1_000)
    print(sent, instance, done.offset, many.result(), count, number, doubt)
    await producer.send("t")  # type: ignore[call-arg]
    await producer.send("t", 1)  # type: ignore[arg-type]
    aio.Producer("h:1", linger=5)  # type: ignore[call-arg]


async def awaited(partitions: list[TopicPartition]) -> None:
    """A listener."""


async def consume() -> None:
    async with aio.Consumer("h:1", "t", group="g") as consumer:
        await consumer.subscribe(["t"], on_revoked=awaited)
        records: list[Record] = await consumer.poll(1_000, max_records=5)
        columns: list[ScanBatch] = await consumer.poll_arrow(1_000)
        async for record in consumer:
            await consumer.store_offsets(record)
        await consumer.commit({TP: 1}, wait=False)
        one: CommittedOffset | None = await consumer.committed(TP)
        some: dict[TopicPartition, CommittedOffset | None] = await consumer.committed([TP])
        me: GroupMetadata = await consumer.group_metadata()
        await consumer.unsubscribe()
        await consumer.assign([TP])
        await consumer.incremental_assign([TP])
        await consumer.incremental_unassign([TP])
        at: int = await consumer.position(TP)
        await consumer.seek(TP, 3)
        await consumer.seek_to_beginning(TP)
        await consumer.seek_to_end(TP, timeout_ms=5)
        await consumer.seek_to_committed(TP)
        await consumer.pause(TP)
        await consumer.resume(TP)
        partitions: list[TopicPartition] = await consumer.partitions("t")
        topics: dict[str, list[PartitionInfo]] = await consumer.list_topics()
        begins: dict[TopicPartition, int] = await consumer.beginning_offsets([TP])
        ends: dict[TopicPartition, int] = await consumer.end_offsets([TP])
        times: dict[TopicPartition, FoundOffset | None] = await consumer.offsets_for_times({TP: 1})
        lag: int = await consumer.lag(TP)
        read: float = (await consumer.metrics())["records-consumed-total"]
        print(read, consumer.assignment, consumer.subscription, consumer.paused)
        await consumer.close(commit=False)
    print(records, columns, one, some, me, at, partitions, topics, begins, ends, times, lag)
    await consumer.seek(TP, "3")  # type: ignore[arg-type]
    await consumer.subscribe(topic="t")  # type: ignore[call-arg]
    await consumer.wakeup()  # type: ignore[attr-defined]


async def share() -> None:
    async with aio.ShareConsumer("h:1", "t", group="g") as consumer:
        await consumer.subscribe(["t"])
        records: list[SharedRecord] = await consumer.poll(1_000, max_records=5)
        async for record in consumer:
            await consumer.acknowledge(record, "release")
        done: Results[TopicPartition, list[int]] = await consumer.commit(timeout_ms=5)
        print(consumer.assignment, consumer.subscription)
        await consumer.close(timeout_ms=5)
    print(records, done.check())
    await consumer.acknowledge(1)  # type: ignore[arg-type]
    await consumer.wakeup()  # type: ignore[attr-defined]
    aio.ShareConsumer("h:1", group=1)  # type: ignore[arg-type]
