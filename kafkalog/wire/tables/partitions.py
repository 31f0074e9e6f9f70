"""Records of partitions: produce, fetch, offsets."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "DELETE_RECORDS",
    "DESCRIBE_PRODUCERS",
    "FETCH",
    "LIST_OFFSETS",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
]

PRODUCE = Api(
    0, "Produce", "3-13", flexible=9, served="0-13",
    request="""
        TransactionalId:str(null =null), Acks:i16, TimeoutMs:i32,
        TopicData[]{
            Name:str(3-12), TopicId:uuid(13+), PartitionData[]{Index:i32, Records:records(null)}
        }
    """,
    response="""
        Responses[]{
            Name:str(3-12), TopicId:uuid(13+),
            PartitionResponses[]{
                Index:i32, ErrorCode:i16, BaseOffset:i64, LogAppendTimeMs:i64(=-1),
                LogStartOffset:i64(5+ =-1),
                RecordErrors[](8+){BatchIndex:i32, BatchIndexErrorMessage:str(null =null)},
                ErrorMessage:str(8+ null =null),
                CurrentLeader(10+ tag0){LeaderId:i32(=-1), LeaderEpoch:i32(=-1)}
            }
        },
        ThrottleTimeMs:i32,
        NodeEndpoints[](10+ tag0){NodeId:i32, Host:str, Port:i32, Rack:str(null =null)}
    """,
)  # fmt: skip

FETCH = Api(
    1, "Fetch", "4-18", flexible=12, served="4-18",
    request="""
        ClusterId:str(12+ null tag0 =null), ReplicaId:i32(4-14 =-1),
        ReplicaState(15+ tag1){ReplicaId:i32(=-1), ReplicaEpoch:i64(=-1)}, MaxWaitMs:i32,
        MinBytes:i32, MaxBytes:i32(=2147483647), IsolationLevel:i8, SessionId:i32(7+),
        SessionEpoch:i32(7+ =-1),
        Topics[]{
            Topic:str(4-12), TopicId:uuid(13+),
            Partitions[]{
                Partition:i32, CurrentLeaderEpoch:i32(9+ =-1), FetchOffset:i64,
                LastFetchedEpoch:i32(12+ =-1), LogStartOffset:i64(5+ =-1),
                PartitionMaxBytes:i32, ReplicaDirectoryId:uuid(17+ tag0),
                HighWatermark:i64(18+ tag1 =9223372036854775807)
            }
        },
        ForgottenTopicsData[](7+){Topic:str(7-12), TopicId:uuid(13+), Partitions:[]i32},
        RackId:str(11+)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16(7+), SessionId:i32(7+),
        Responses[]{
            Topic:str(4-12), TopicId:uuid(13+),
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, HighWatermark:i64, LastStableOffset:i64(=-1),
                LogStartOffset:i64(5+ =-1),
                DivergingEpoch(12+ tag0){Epoch:i32(=-1), EndOffset:i64(=-1)},
                CurrentLeader(12+ tag1){LeaderId:i32(=-1), LeaderEpoch:i32(=-1)},
                SnapshotId(12+ tag2){EndOffset:i64(=-1), Epoch:i32(=-1)},
                AbortedTransactions[](null){ProducerId:i64, FirstOffset:i64},
                PreferredReadReplica:i32(11+ =-1), Records:records(null)
            }
        },
        NodeEndpoints[](16+ tag0){NodeId:i32, Host:str, Port:i32, Rack:str(null =null)}
    """,
)  # fmt: skip

LIST_OFFSETS = Api(
    2, "ListOffsets", "1-11", flexible=6, served="1-11",
    request="""
        ReplicaId:i32, IsolationLevel:i8(2+),
        Topics[]{
            Name:str,
            Partitions[]{PartitionIndex:i32, CurrentLeaderEpoch:i32(4+ =-1), Timestamp:i64}
        },
        TimeoutMs:i32(10+)
    """,
    response="""
        ThrottleTimeMs:i32(2+),
        Topics[]{
            Name:str,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, Timestamp:i64(=-1), Offset:i64(=-1),
                LeaderEpoch:i32(4+ =-1)
            }
        }
    """,
)  # fmt: skip

DELETE_RECORDS = Api(
    21, "DeleteRecords", "0-2", flexible=2, served="0-2",
    request="""
        Topics[]{
            Name:str, Partitions[]{PartitionIndex:i32, Offset:i64}
        },
        TimeoutMs:i32
    """,
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            Name:str, Partitions[]{PartitionIndex:i32, LowWatermark:i64, ErrorCode:i16}
        }
    """,
)  # fmt: skip

OFFSET_FOR_LEADER_EPOCH = Api(
    23, "OffsetForLeaderEpoch", "2-4", flexible=4, served="2-4",
    request="""
        ReplicaId:i32(3+ =-2),
        Topics[]{
            Topic:str, Partitions[]{Partition:i32, CurrentLeaderEpoch:i32(=-1), LeaderEpoch:i32}
        }
    """,
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            Topic:str,
            Partitions[]{ErrorCode:i16, Partition:i32, LeaderEpoch:i32(=-1), EndOffset:i64(=-1)}
        }
    """,
)  # fmt: skip

DESCRIBE_PRODUCERS = Api(
    61, "DescribeProducers", "0", flexible=0, served="0",
    request="Topics[]{Name:str, PartitionIndexes:[]i32}",
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            Name:str,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(null =null),
                ActiveProducers[]{
                    ProducerId:i64, ProducerEpoch:i32, LastSequence:i32(=-1),
                    LastTimestamp:i64(=-1), CoordinatorEpoch:i32, CurrentTxnStartOffset:i64(=-1)
                }
            }
        }
    """,
)  # fmt: skip
