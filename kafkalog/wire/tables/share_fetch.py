"""The records of share groups (KIP-932), at the leaders of their partitions."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["SHARE_ACKNOWLEDGE", "SHARE_FETCH"]

SHARE_FETCH = Api(
    78, "ShareFetch", "1-2", flexible=0, served="1-2",
    request="""
        GroupId:str(null =null), MemberId:str(null), ShareSessionEpoch:i32, MaxWaitMs:i32,
        MinBytes:i32, MaxBytes:i32(=2147483647), MaxRecords:i32, BatchSize:i32,
        ShareAcquireMode:i8(2+), IsRenewAck:bool(2+),
        Topics[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32,
                AcknowledgementBatches[]{FirstOffset:i64, LastOffset:i64, AcknowledgeTypes:[]i8}
            }
        },
        ForgottenTopicsData[]{TopicId:uuid, Partitions:[]i32}
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        AcquisitionLockTimeoutMs:i32,
        Responses[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(null =null),
                AcknowledgeErrorCode:i16, AcknowledgeErrorMessage:str(null =null),
                CurrentLeader{LeaderId:i32, LeaderEpoch:i32}, Records:records,
                AcquiredRecords[]{FirstOffset:i64, LastOffset:i64, DeliveryCount:i16}
            }
        },
        NodeEndpoints[]{NodeId:i32, Host:str, Port:i32, Rack:str(null =null)}
    """,
)  # fmt: skip

SHARE_ACKNOWLEDGE = Api(
    79, "ShareAcknowledge", "1-2", flexible=0, served="1-2",
    request="""
        GroupId:str(null =null), MemberId:str(null), ShareSessionEpoch:i32, IsRenewAck:bool(2+),
        Topics[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32,
                AcknowledgementBatches[]{FirstOffset:i64, LastOffset:i64, AcknowledgeTypes:[]i8}
            }
        }
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        AcquisitionLockTimeoutMs:i32(2+),
        Responses[]{
            TopicId:uuid,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(null =null),
                CurrentLeader{LeaderId:i32, LeaderEpoch:i32}
            }
        },
        NodeEndpoints[]{NodeId:i32, Host:str, Port:i32, Rack:str(null =null)}
    """,
)  # fmt: skip
