"""Requests between brokers and controllers."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ALLOCATE_PRODUCER_IDS",
    "ALTER_PARTITION",
]

ALTER_PARTITION = Api(
    56, "AlterPartition", "2-3", flexible=0,
    request="""
        BrokerId:i32, BrokerEpoch:i64(=-1),
        Topics[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32, LeaderEpoch:i32, NewIsr:[]i32(2),
                NewIsrWithEpochs[](3+){BrokerId:i32, BrokerEpoch:i64(=-1)},
                LeaderRecoveryState:i8, PartitionEpoch:i32
            }
        }
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16,
        Topics[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32, Isr:[]i32,
                LeaderRecoveryState:i8, PartitionEpoch:i32
            }
        }
    """,
)  # fmt: skip

ALLOCATE_PRODUCER_IDS = Api(
    67, "AllocateProducerIds", "0", flexible=0,
    request="BrokerId:i32, BrokerEpoch:i64(=-1)",
    response="ThrottleTimeMs:i32, ErrorCode:i16, ProducerIdStart:i64, ProducerIdLen:i32",
)  # fmt: skip
