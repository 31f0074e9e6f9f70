"""Consumer groups, of the classic protocol and of Kafka 4's."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "DELETE_GROUPS",
    "DESCRIBE_GROUPS",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "SYNC_GROUP",
]

OFFSET_COMMIT = Api(
    8, "OffsetCommit", "2-10", flexible=8, served="2-10",
    request="""
        GroupId:str, GenerationIdOrMemberEpoch:i32(=-1), MemberId:str,
        GroupInstanceId:str(7+ null =null), RetentionTimeMs:i64(2-4 =-1),
        Topics[]{
            Name:str(2-9), TopicId:uuid(10+),
            Partitions[]{
                PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32(6+ =-1),
                CommittedMetadata:str(null)
            }
        }
    """,
    response="""
        ThrottleTimeMs:i32(3+),
        Topics[]{
            Name:str(2-9), TopicId:uuid(10+), Partitions[]{PartitionIndex:i32, ErrorCode:i16}
        }
    """,
)  # fmt: skip

OFFSET_FETCH = Api(
    9, "OffsetFetch", "1-10", flexible=6, served="1-10",
    request="""
        GroupId:str(1-7), Topics[](1-7 null2+){Name:str, PartitionIndexes:[]i32},
        Groups[](8+){
            GroupId:str, MemberId:str(9+ null =null), MemberEpoch:i32(9+ =-1),
            Topics[](null){Name:str(8-9), TopicId:uuid(10+), PartitionIndexes:[]i32}
        },
        RequireStable:bool(7+)
    """,
    response="""
        ThrottleTimeMs:i32(3+),
        Topics[](1-7){
            Name:str,
            Partitions[]{
                PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32(5+ =-1),
                Metadata:str(null), ErrorCode:i16
            }
        },
        ErrorCode:i16(2-7),
        Groups[](8+){
            GroupId:str,
            Topics[]{
                Name:str(8-9), TopicId:uuid(10+),
                Partitions[]{
                    PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32(=-1),
                    Metadata:str(null), ErrorCode:i16
                }
            },
            ErrorCode:i16
        }
    """,
)  # fmt: skip

FIND_COORDINATOR = Api(
    10, "FindCoordinator", "0-6", flexible=3, served="0-6",
    request="Key:str(0-3), KeyType:i8(1+), CoordinatorKeys:[]str(4+)",
    response="""
        ThrottleTimeMs:i32(1+), ErrorCode:i16(0-3), ErrorMessage:str(1-3 null), NodeId:i32(0-3),
        Host:str(0-3), Port:i32(0-3),
        Coordinators[](4+){
            Key:str, NodeId:i32, Host:str, Port:i32, ErrorCode:i16, ErrorMessage:str(null)
        }
    """,
)  # fmt: skip

JOIN_GROUP = Api(
    11, "JoinGroup", "0-9", flexible=6, served="0-9",
    request="""
        GroupId:str, SessionTimeoutMs:i32, RebalanceTimeoutMs:i32(1+ =-1), MemberId:str,
        GroupInstanceId:str(5+ null =null), ProtocolType:str,
        Protocols[]{Name:str, Metadata:bytes}, Reason:str(8+ null =null)
    """,
    response="""
        ThrottleTimeMs:i32(2+), ErrorCode:i16, GenerationId:i32(=-1),
        ProtocolType:str(7+ null =null), ProtocolName:str(null7+), Leader:str,
        SkipAssignment:bool(9+), MemberId:str,
        Members[]{MemberId:str, GroupInstanceId:str(5+ null =null), Metadata:bytes}
    """,
)  # fmt: skip

HEARTBEAT = Api(
    12, "Heartbeat", "0-4", flexible=4, served="0-4",
    request="GroupId:str, GenerationId:i32, MemberId:str, GroupInstanceId:str(3+ null =null)",
    response="ThrottleTimeMs:i32(1+), ErrorCode:i16",
)  # fmt: skip

LEAVE_GROUP = Api(
    13, "LeaveGroup", "0-5", flexible=4, served="0-5",
    request="""
        GroupId:str, MemberId:str(0-2),
        Members[](3+){MemberId:str, GroupInstanceId:str(null =null), Reason:str(5+ null =null)}
    """,
    response="""
        ThrottleTimeMs:i32(1+), ErrorCode:i16,
        Members[](3+){MemberId:str, GroupInstanceId:str(null), ErrorCode:i16}
    """,
)  # fmt: skip

SYNC_GROUP = Api(
    14, "SyncGroup", "0-5", flexible=4, served="0-5",
    request="""
        GroupId:str, GenerationId:i32, MemberId:str, GroupInstanceId:str(3+ null =null),
        ProtocolType:str(5+ null =null), ProtocolName:str(5+ null =null),
        Assignments[]{MemberId:str, Assignment:bytes}
    """,
    response="""
        ThrottleTimeMs:i32(1+), ErrorCode:i16, ProtocolType:str(5+ null =null),
        ProtocolName:str(5+ null =null), Assignment:bytes
    """,
)  # fmt: skip

DESCRIBE_GROUPS = Api(
    15, "DescribeGroups", "0-6", flexible=5, served="0-6",
    request="Groups:[]str, IncludeAuthorizedOperations:bool(3+)",
    response="""
        ThrottleTimeMs:i32(1+),
        Groups[]{
            ErrorCode:i16, ErrorMessage:str(6+ null =null), GroupId:str, GroupState:str,
            ProtocolType:str, ProtocolData:str,
            Members[]{
                MemberId:str, GroupInstanceId:str(4+ null =null), ClientId:str, ClientHost:str,
                MemberMetadata:bytes, MemberAssignment:bytes
            },
            AuthorizedOperations:i32(3+ =-2147483648)
        }
    """,
)  # fmt: skip

LIST_GROUPS = Api(
    16, "ListGroups", "0-5", flexible=3, served="0-5",
    request="StatesFilter:[]str(4+), TypesFilter:[]str(5+)",
    response="""
        ThrottleTimeMs:i32(1+), ErrorCode:i16,
        Groups[]{GroupId:str, ProtocolType:str, GroupState:str(4+), GroupType:str(5+)}
    """,
)  # fmt: skip

DELETE_GROUPS = Api(
    42, "DeleteGroups", "0-3", flexible=2, served="0-3",
    request="GroupsNames:[]str",
    response="""
        ThrottleTimeMs:i32, Results[]{GroupId:str, ErrorCode:i16, ErrorMessage:str(3+ null =null)}
    """,
)  # fmt: skip

OFFSET_DELETE = Api(
    47, "OffsetDelete", "0", served="0",
    request="GroupId:str, Topics[]{Name:str, Partitions[]{PartitionIndex:i32}}",
    response="""
        ErrorCode:i16, ThrottleTimeMs:i32,
        Topics[]{
            Name:str, Partitions[]{PartitionIndex:i32, ErrorCode:i16}
        }
    """,
)  # fmt: skip
