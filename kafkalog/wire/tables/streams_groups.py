"""Streams groups (KIP-1071): their members and tasks."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["STREAMS_GROUP_DESCRIBE", "STREAMS_GROUP_HEARTBEAT"]

STREAMS_GROUP_HEARTBEAT = Api(
    88, "StreamsGroupHeartbeat", "0-1", flexible=0, served="0-1",
    request="""
        GroupId:str, MemberId:str, MemberEpoch:i32, EndpointInformationEpoch:i32,
        InstanceId:str(null =null), RackId:str(null =null), RebalanceTimeoutMs:i32(=-1),
        Topology(null =null){
            Epoch:i32,
            Subtopologies[]{
                SubtopologyId:str, SourceTopics:[]str, SourceTopicRegex:[]str,
                StateChangelogTopics[]{
                    Name:str, Partitions:i32, ReplicationFactor:i16,
                    TopicConfigs[]{Key:str, Value:str}
                },
                RepartitionSinkTopics:[]str,
                RepartitionSourceTopics[]{
                    Name:str, Partitions:i32, ReplicationFactor:i16,
                    TopicConfigs[]{Key:str, Value:str}
                },
                CopartitionGroups[]{
                    SourceTopics:[]i16, SourceTopicRegex:[]i16, RepartitionSourceTopics:[]i16
                }
            }
        },
        ActiveTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        StandbyTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        WarmupTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        ProcessId:str(null =null), UserEndpoint(null =null){Host:str, Port:u16},
        ClientTags[](null =null){Key:str, Value:str},
        TaskOffsets[](null =null){SubtopologyId:str, Partition:i32, Offset:i64},
        TaskEndOffsets[](null =null){SubtopologyId:str, Partition:i32, Offset:i64},
        ShutdownApplication:bool
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null), MemberId:str,
        MemberEpoch:i32, HeartbeatIntervalMs:i32, AcceptableRecoveryLagLegacy:i32(0),
        TaskOffsetIntervalMs:i32, AcceptableRecoveryLag:i64(1+ =-1),
        Status[](null){StatusCode:i8, StatusDetail:str},
        ActiveTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        StandbyTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        WarmupTasks[](null =null){SubtopologyId:str, Partitions:[]i32},
        TopologyDescriptionRequired:bool(1+), EndpointInformationEpoch:i32,
        PartitionsByUserEndpoint[](null =null){
            UserEndpoint{Host:str, Port:u16}, ActivePartitions[]{Topic:str, Partitions:[]i32},
            StandbyPartitions[]{Topic:str, Partitions:[]i32}
        }
    """,
)  # fmt: skip

STREAMS_GROUP_DESCRIBE = Api(
    89, "StreamsGroupDescribe", "0-1", flexible=0, served="0-1",
    request="""
        GroupIds:[]str, IncludeAuthorizedOperations:bool, IncludeTopologyDescription:bool(1+)
    """,
    response="""
        ThrottleTimeMs:i32,
        Groups[]{
            ErrorCode:i16, ErrorMessage:str(null =null), GroupId:str, GroupState:str,
            GroupEpoch:i32, AssignmentEpoch:i32,
            Topology(null =null){
                Epoch:i32,
                Subtopologies[](null =null){
                    SubtopologyId:str, SourceTopics:[]str, RepartitionSinkTopics:[]str,
                    StateChangelogTopics[]{
                        Name:str, Partitions:i32, ReplicationFactor:i16,
                        TopicConfigs[]{Key:str, Value:str}
                    },
                    RepartitionSourceTopics[]{
                        Name:str, Partitions:i32, ReplicationFactor:i16,
                        TopicConfigs[]{Key:str, Value:str}
                    }
                }
            },
            Members[]{
                MemberId:str, MemberEpoch:i32, InstanceId:str(null =null),
                RackId:str(null =null), ClientId:str, ClientHost:str, TopologyEpoch:i32,
                ProcessId:str, UserEndpoint(null =null){Host:str, Port:u16},
                ClientTags[]{Key:str, Value:str},
                TaskOffsets[]{SubtopologyId:str, Partition:i32, Offset:i64},
                TaskEndOffsets[]{SubtopologyId:str, Partition:i32, Offset:i64},
                Assignment{
                    ActiveTasks[]{SubtopologyId:str, Partitions:[]i32},
                    StandbyTasks[]{SubtopologyId:str, Partitions:[]i32},
                    WarmupTasks[]{SubtopologyId:str, Partitions:[]i32}
                },
                TargetAssignment{
                    ActiveTasks[]{SubtopologyId:str, Partitions:[]i32},
                    StandbyTasks[]{SubtopologyId:str, Partitions:[]i32},
                    WarmupTasks[]{SubtopologyId:str, Partitions:[]i32}
                },
                IsClassic:bool
            },
            AuthorizedOperations:i32(=-2147483648),
            TopologyDescription(1+ null =null){
                Subtopologies[]{
                    SubtopologyId:str,
                    Nodes[]{
                        Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                        Stores:[]str, Successors:[]str
                    }
                },
                GlobalStores[]{
                    Source{
                        Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                        Stores:[]str, Successors:[]str
                    },
                    Processor{
                        Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                        Stores:[]str, Successors:[]str
                    }
                }
            },
            TopologyDescriptionStatus:i8(1+), AssignorName:str(1+ null =null)
        }
    """,
)  # fmt: skip
