"""Producer ids and transactions."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "DESCRIBE_TRANSACTIONS",
    "END_TXN",
    "INIT_PRODUCER_ID",
    "LIST_TRANSACTIONS",
    "TXN_OFFSET_COMMIT",
    "WRITE_TXN_MARKERS",
]

INIT_PRODUCER_ID = Api(
    22, "InitProducerId", "0-6", flexible=2, served="0-5",
    request="""
        TransactionalId:str(null), TransactionTimeoutMs:i32, ProducerId:i64(3+ =-1),
        ProducerEpoch:i16(3+ =-1), Enable2Pc:bool(6+), KeepPreparedTxn:bool(6+)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ProducerId:i64(=-1), ProducerEpoch:i16,
        OngoingTxnProducerId:i64(6+ =-1), OngoingTxnProducerEpoch:i16(6+ =-1)
    """,
)  # fmt: skip

ADD_PARTITIONS_TO_TXN = Api(
    24, "AddPartitionsToTxn", "0-5", flexible=3, served="0-5",
    request="""
        Transactions[](4+){
            TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, VerifyOnly:bool,
            Topics[]{Name:str, Partitions:[]i32}
        },
        V3AndBelowTransactionalId:str(0-3), V3AndBelowProducerId:i64(0-3),
        V3AndBelowProducerEpoch:i16(0-3), V3AndBelowTopics[](0-3){Name:str, Partitions:[]i32}
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16(4+),
        ResultsByTransaction[](4+){
            TransactionalId:str,
            TopicResults[]{
                Name:str, ResultsByPartition[]{PartitionIndex:i32, PartitionErrorCode:i16}
            }
        },
        ResultsByTopicV3AndBelow[](0-3){
            Name:str, ResultsByPartition[]{PartitionIndex:i32, PartitionErrorCode:i16}
        }
    """,
)  # fmt: skip

ADD_OFFSETS_TO_TXN = Api(
    25, "AddOffsetsToTxn", "0-4", flexible=3, served="0-4",
    request="TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, GroupId:str",
    response="ThrottleTimeMs:i32, ErrorCode:i16",
)  # fmt: skip

END_TXN = Api(
    26, "EndTxn", "0-5", flexible=3, served="0-5",
    request="TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, Committed:bool",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ProducerId:i64(5+ =-1), ProducerEpoch:i16(5+ =-1)
    """,
)  # fmt: skip

WRITE_TXN_MARKERS = Api(
    27, "WriteTxnMarkers", "1-2", flexible=1, served="1-2",
    request="""
        Markers[]{
            ProducerId:i64, ProducerEpoch:i16, TransactionResult:bool,
            Topics[]{Name:str, PartitionIndexes:[]i32}, CoordinatorEpoch:i32,
            TransactionVersion:i8(2+)
        }
    """,
    response="""
        Markers[]{
            ProducerId:i64,
            Topics[]{
                Name:str, Partitions[]{PartitionIndex:i32, ErrorCode:i16}
            }
        }
    """,
)  # fmt: skip

TXN_OFFSET_COMMIT = Api(
    28, "TxnOffsetCommit", "0-6", flexible=3, served="0-6",
    request="""
        TransactionalId:str, GroupId:str, ProducerId:i64, ProducerEpoch:i16,
        GenerationIdOrMemberEpoch:i32(3+ =-1), MemberId:str(3+),
        GroupInstanceId:str(3+ null =null),
        Topics[]{
            Name:str(0-5), TopicId:uuid(6+),
            Partitions[]{
                PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32(2+ =-1),
                CommittedMetadata:str(null)
            }
        }
    """,
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            Name:str(0-5), TopicId:uuid(6+), Partitions[]{PartitionIndex:i32, ErrorCode:i16}
        }
    """,
)  # fmt: skip

DESCRIBE_TRANSACTIONS = Api(
    65, "DescribeTransactions", "0", flexible=0, served="0",
    request="TransactionalIds:[]str",
    response="""
        ThrottleTimeMs:i32,
        TransactionStates[]{
            ErrorCode:i16, TransactionalId:str, TransactionState:str, TransactionTimeoutMs:i32,
            TransactionStartTimeMs:i64, ProducerId:i64, ProducerEpoch:i16,
            Topics[]{Topic:str, Partitions:[]i32}
        }
    """,
)  # fmt: skip

LIST_TRANSACTIONS = Api(
    66, "ListTransactions", "0-2", flexible=0, served="0-2",
    request="""
        StateFilters:[]str, ProducerIdFilters:[]i64, DurationFilter:i64(1+ =-1),
        TransactionalIdPattern:str(2+ null =null)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, UnknownStateFilters:[]str,
        TransactionStates[]{TransactionalId:str, ProducerId:i64, TransactionState:str}
    """,
)  # fmt: skip
