"""Share groups (KIP-932): their members, and where their partitions begin."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ALTER_SHARE_GROUP_OFFSETS",
    "DELETE_SHARE_GROUP_OFFSETS",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "SHARE_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT",
]

SHARE_GROUP_HEARTBEAT = Api(
    76, "ShareGroupHeartbeat", "1", flexible=0, served="1",
    request="""
        GroupId:str, MemberId:str, MemberEpoch:i32, RackId:str(null =null),
        SubscribedTopicNames:[]str(null =null)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        MemberId:str(null =null), MemberEpoch:i32, HeartbeatIntervalMs:i32,
        Assignment(null =null){
            TopicPartitions[]{TopicId:uuid, Partitions:[]i32}
        }
    """,
)  # fmt: skip

SHARE_GROUP_DESCRIBE = Api(
    77, "ShareGroupDescribe", "1", flexible=0, served="1",
    request="GroupIds:[]str, IncludeAuthorizedOperations:bool",
    response="""
        ThrottleTimeMs:i32,
        Groups[]{
            ErrorCode:i16, ErrorMessage:str(null =null), GroupId:str, GroupState:str,
            GroupEpoch:i32, AssignmentEpoch:i32, AssignorName:str,
            Members[]{
                MemberId:str, RackId:str(null =null), MemberEpoch:i32, ClientId:str,
                ClientHost:str, SubscribedTopicNames:[]str,
                Assignment{
                    TopicPartitions[]{TopicId:uuid, TopicName:str, Partitions:[]i32}
                }
            },
            AuthorizedOperations:i32(=-2147483648)
        }
    """,
)  # fmt: skip

DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    90, "DescribeShareGroupOffsets", "0-1", flexible=0, served="0-1",
    request="""
        Groups[]{
            GroupId:str, Topics[](null){TopicName:str, Partitions:[]i32}
        }
    """,
    response="""
        ThrottleTimeMs:i32,
        Groups[]{
            GroupId:str,
            Topics[]{
                TopicName:str, TopicId:uuid,
                Partitions[]{
                    PartitionIndex:i32, StartOffset:i64, LeaderEpoch:i32, Lag:i64(1+ =-1),
                    ErrorCode:i16, ErrorMessage:str(null =null)
                }
            },
            ErrorCode:i16, ErrorMessage:str(null =null)
        }
    """,
)  # fmt: skip

ALTER_SHARE_GROUP_OFFSETS = Api(
    91, "AlterShareGroupOffsets", "0", flexible=0, served="0",
    request="""
        GroupId:str,
        Topics[]{
            TopicName:str, Partitions[]{PartitionIndex:i32, StartOffset:i64}
        }
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        Responses[]{
            TopicName:str, TopicId:uuid,
            Partitions[]{PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(null =null)}
        }
    """,
)  # fmt: skip

DELETE_SHARE_GROUP_OFFSETS = Api(
    92, "DeleteShareGroupOffsets", "0", flexible=0, served="0",
    request="GroupId:str, Topics[]{TopicName:str}",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        Responses[]{TopicName:str, TopicId:uuid, ErrorCode:i16, ErrorMessage:str(null =null)}
    """,
)  # fmt: skip
