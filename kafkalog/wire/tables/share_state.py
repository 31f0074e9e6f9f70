"""The state of share groups, which their coordinator keeps."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "DELETE_SHARE_GROUP_STATE",
    "INITIALIZE_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    "WRITE_SHARE_GROUP_STATE",
]

INITIALIZE_SHARE_GROUP_STATE = Api(
    83, "InitializeShareGroupState", "0", flexible=0, served="0",
    request="""
        GroupId:str,
        Topics[]{
            TopicId:uuid, Partitions[]{Partition:i32, StateEpoch:i32, StartOffset:i64}
        }
    """,
    response="""
        Results[]{
            TopicId:uuid,
            Partitions[]{Partition:i32, ErrorCode:i16, ErrorMessage:str(null =null)}
        }
    """,
)  # fmt: skip

READ_SHARE_GROUP_STATE = Api(
    84, "ReadShareGroupState", "0", flexible=0, served="0",
    request="""
        GroupId:str,
        Topics[]{
            TopicId:uuid, Partitions[]{Partition:i32, LeaderEpoch:i32}
        }
    """,
    response="""
        Results[]{
            TopicId:uuid,
            Partitions[]{
                Partition:i32, ErrorCode:i16, ErrorMessage:str(null =null), StateEpoch:i32,
                StartOffset:i64,
                StateBatches[]{
                    FirstOffset:i64, LastOffset:i64, DeliveryState:i8, DeliveryCount:i16
                }
            }
        }
    """,
)  # fmt: skip

WRITE_SHARE_GROUP_STATE = Api(
    85, "WriteShareGroupState", "0-1", flexible=0, served="0-1",
    request="""
        GroupId:str,
        Topics[]{
            TopicId:uuid,
            Partitions[]{
                Partition:i32, StateEpoch:i32, LeaderEpoch:i32, StartOffset:i64,
                DeliveryCompleteCount:i32(1+ =-1),
                StateBatches[]{
                    FirstOffset:i64, LastOffset:i64, DeliveryState:i8, DeliveryCount:i16
                }
            }
        }
    """,
    response="""
        Results[]{
            TopicId:uuid,
            Partitions[]{Partition:i32, ErrorCode:i16, ErrorMessage:str(null =null)}
        }
    """,
)  # fmt: skip

DELETE_SHARE_GROUP_STATE = Api(
    86, "DeleteShareGroupState", "0", flexible=0, served="0",
    request="GroupId:str, Topics[]{TopicId:uuid, Partitions[]{Partition:i32}}",
    response="""
        Results[]{
            TopicId:uuid,
            Partitions[]{Partition:i32, ErrorCode:i16, ErrorMessage:str(null =null)}
        }
    """,
)  # fmt: skip

READ_SHARE_GROUP_STATE_SUMMARY = Api(
    87, "ReadShareGroupStateSummary", "0-1", flexible=0, served="0-1",
    request="""
        GroupId:str,
        Topics[]{
            TopicId:uuid, Partitions[]{Partition:i32, LeaderEpoch:i32}
        }
    """,
    response="""
        Results[]{
            TopicId:uuid,
            Partitions[]{
                Partition:i32, ErrorCode:i16, ErrorMessage:str(null =null), StateEpoch:i32,
                LeaderEpoch:i32, StartOffset:i64, DeliveryCompleteCount:i32(1+ =-1)
            }
        }
    """,
)  # fmt: skip
