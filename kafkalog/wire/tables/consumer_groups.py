"""The protocol of consumer groups of KIP-848."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
]

CONSUMER_GROUP_HEARTBEAT = Api(
    68, "ConsumerGroupHeartbeat", "0-1", flexible=0, served="0-1",
    request="""
        GroupId:str, MemberId:str, MemberEpoch:i32, InstanceId:str(null =null),
        RackId:str(null =null), RebalanceTimeoutMs:i32(=-1),
        SubscribedTopicNames:[]str(null =null), SubscribedTopicRegex:str(1+ null =null),
        ServerAssignor:str(null =null),
        TopicPartitions[](null =null){TopicId:uuid, Partitions:[]i32}
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null),
        MemberId:str(null =null), MemberEpoch:i32, HeartbeatIntervalMs:i32,
        Assignment(null =null){
            TopicPartitions[]{TopicId:uuid, Partitions:[]i32}
        }
    """,
)  # fmt: skip

CONSUMER_GROUP_DESCRIBE = Api(
    69, "ConsumerGroupDescribe", "0-1", flexible=0, served="0-1",
    request="GroupIds:[]str, IncludeAuthorizedOperations:bool",
    response="""
        ThrottleTimeMs:i32,
        Groups[]{
            ErrorCode:i16, ErrorMessage:str(null =null), GroupId:str, GroupState:str,
            GroupEpoch:i32, AssignmentEpoch:i32, AssignorName:str,
            Members[]{
                MemberId:str, InstanceId:str(null =null), RackId:str(null =null),
                MemberEpoch:i32, ClientId:str, ClientHost:str, SubscribedTopicNames:[]str,
                SubscribedTopicRegex:str(null =null),
                Assignment{
                    TopicPartitions[]{TopicId:uuid, TopicName:str, Partitions:[]i32}
                },
                TargetAssignment{
                    TopicPartitions[]{TopicId:uuid, TopicName:str, Partitions:[]i32}
                },
                MemberType:i8(1+ =-1)
            },
            AuthorizedOperations:i32(=-2147483648)
        }
    """,
)  # fmt: skip
