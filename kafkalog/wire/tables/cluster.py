"""Requests about a cluster: brokers, topics, disks, features."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "API_VERSIONS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_TOPIC_PARTITIONS",
    "ELECT_LEADERS",
    "LIST_PARTITION_REASSIGNMENTS",
    "METADATA",
    "UNREGISTER_BROKER",
    "UNREGISTER_CONTROLLER",
    "UPDATE_FEATURES",
]

METADATA = Api(
    3, "Metadata", "0-13", flexible=9, served="0-13",
    request="""
        Topics[](null1+){TopicId:uuid(10+), Name:str(null10+)},
        AllowAutoTopicCreation:bool(4+ =true), IncludeClusterAuthorizedOperations:bool(8-10),
        IncludeTopicAuthorizedOperations:bool(8+)
    """,
    response="""
        ThrottleTimeMs:i32(3+),
        Brokers[]{NodeId:i32, Host:str, Port:i32, Rack:str(1+ null =null)},
        ClusterId:str(2+ null =null), ControllerId:i32(1+ =-1),
        Topics[]{
            ErrorCode:i16, Name:str(null12+), TopicId:uuid(10+), IsInternal:bool(1+),
            Partitions[]{
                ErrorCode:i16, PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32(7+ =-1),
                ReplicaNodes:[]i32, IsrNodes:[]i32, OfflineReplicas:[]i32(5+)
            },
            TopicAuthorizedOperations:i32(8+ =-2147483648)
        },
        ClusterAuthorizedOperations:i32(8-10 =-2147483648), ErrorCode:i16(13+)
    """,
)  # fmt: skip

API_VERSIONS = Api(
    18, "ApiVersions", "0-5", flexible=3, served="0-5",
    request="""
        ClientSoftwareName:str(3+), ClientSoftwareVersion:str(3+), ClusterId:str(5+ null =null),
        NodeId:i32(5+ =-1)
    """,
    response="""
        ErrorCode:i16, ApiKeys[]{ApiKey:i16, MinVersion:i16, MaxVersion:i16},
        ThrottleTimeMs:i32(1+),
        SupportedFeatures[](3+ tag0){Name:str, MinVersion:i16, MaxVersion:i16},
        FinalizedFeaturesEpoch:i64(3+ tag1 =-1),
        FinalizedFeatures[](3+ tag2){Name:str, MaxVersionLevel:i16, MinVersionLevel:i16},
        ZkMigrationReady:bool(3+ tag3)
    """,
)  # fmt: skip

ALTER_REPLICA_LOG_DIRS = Api(
    34, "AlterReplicaLogDirs", "1-2", flexible=2, served="1-2",
    request="Dirs[]{Path:str, Topics[]{Name:str, Partitions:[]i32}}",
    response="""
        ThrottleTimeMs:i32,
        Results[]{
            TopicName:str, Partitions[]{PartitionIndex:i32, ErrorCode:i16}
        }
    """,
)  # fmt: skip

DESCRIBE_LOG_DIRS = Api(
    35, "DescribeLogDirs", "1-5", flexible=2, served="1-5",
    request="Topics[](null){Topic:str, Partitions:[]i32}",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16(3+),
        Results[]{
            ErrorCode:i16, LogDir:str,
            Topics[]{
                Name:str,
                Partitions[]{
                    PartitionIndex:i32, PartitionSize:i64, OffsetLag:i64, IsFutureKey:bool
                }
            },
            TotalBytes:i64(4+ =-1), UsableBytes:i64(4+ =-1), IsCordoned:bool(5+)
        }
    """,
)  # fmt: skip

ELECT_LEADERS = Api(
    43, "ElectLeaders", "0-2", flexible=2, served="0-2",
    request="""
        ElectionType:i8(1+), TopicPartitions[](null){Topic:str, Partitions:[]i32},
        TimeoutMs:i32(=60000)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16(1+),
        ReplicaElectionResults[]{
            Topic:str, PartitionResult[]{PartitionId:i32, ErrorCode:i16, ErrorMessage:str(null)}
        }
    """,
)  # fmt: skip

ALTER_PARTITION_REASSIGNMENTS = Api(
    45, "AlterPartitionReassignments", "0-1", flexible=0, served="0-1",
    request="""
        TimeoutMs:i32(=60000), AllowReplicationFactorChange:bool(1+ =true),
        Topics[]{
            Name:str, Partitions[]{PartitionIndex:i32, Replicas:[]i32(null =null)}
        }
    """,
    response="""
        ThrottleTimeMs:i32, AllowReplicationFactorChange:bool(1+ =true), ErrorCode:i16,
        ErrorMessage:str(null),
        Responses[]{
            Name:str, Partitions[]{PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(null)}
        }
    """,
)  # fmt: skip

LIST_PARTITION_REASSIGNMENTS = Api(
    46, "ListPartitionReassignments", "0", flexible=0, served="0",
    request="TimeoutMs:i32(=60000), Topics[](null =null){Name:str, PartitionIndexes:[]i32}",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null),
        Topics[]{
            Name:str,
            Partitions[]{
                PartitionIndex:i32, Replicas:[]i32, AddingReplicas:[]i32, RemovingReplicas:[]i32
            }
        }
    """,
)  # fmt: skip

DESCRIBE_QUORUM = Api(
    55, "DescribeQuorum", "0-2", flexible=0, served="0-2",
    request="Topics[]{TopicName:str, Partitions[]{PartitionIndex:i32}}",
    response="""
        ErrorCode:i16, ErrorMessage:str(2+ null),
        Topics[]{
            TopicName:str,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str(2+ null), LeaderId:i32,
                LeaderEpoch:i32, HighWatermark:i64,
                CurrentVoters[]{
                    ReplicaId:i32, ReplicaDirectoryId:uuid(2+), LogEndOffset:i64,
                    LastFetchTimestamp:i64(1+ =-1), LastCaughtUpTimestamp:i64(1+ =-1)
                },
                Observers[]{
                    ReplicaId:i32, ReplicaDirectoryId:uuid(2+), LogEndOffset:i64,
                    LastFetchTimestamp:i64(1+ =-1), LastCaughtUpTimestamp:i64(1+ =-1)
                }
            }
        },
        Nodes[](2+){
            NodeId:i32, Listeners[]{Name:str, Host:str, Port:u16}
        }
    """,
)  # fmt: skip

UPDATE_FEATURES = Api(
    57, "UpdateFeatures", "0-2", flexible=0, served="0-2",
    request="""
        timeoutMs:i32(=60000),
        FeatureUpdates[]{
            Feature:str, MaxVersionLevel:i16, AllowDowngrade:bool(0), UpgradeType:i8(1+ =1)
        },
        ValidateOnly:bool(1+)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null),
        Results[](0-1){Feature:str, ErrorCode:i16, ErrorMessage:str(null)}
    """,
)  # fmt: skip

DESCRIBE_CLUSTER = Api(
    60, "DescribeCluster", "0-2", flexible=0, served="0-2",
    request="""
        IncludeClusterAuthorizedOperations:bool, EndpointType:i8(1+ =1),
        IncludeFencedBrokers:bool(2+)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null), EndpointType:i8(1+ =1),
        ClusterId:str, ControllerId:i32(=-1),
        Brokers[]{BrokerId:i32, Host:str, Port:i32, Rack:str(null =null), IsFenced:bool(2+)},
        ClusterAuthorizedOperations:i32(=-2147483648)
    """,
)  # fmt: skip

UNREGISTER_BROKER = Api(
    64, "UnregisterBroker", "0", flexible=0, served="0",
    request="BrokerId:i32",
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null)",
)  # fmt: skip

UNREGISTER_CONTROLLER = Api(
    94, "UnregisterController", "0", flexible=0, served="0",
    request="ControllerId:i32",
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null)",
)  # fmt: skip

DESCRIBE_TOPIC_PARTITIONS = Api(
    75, "DescribeTopicPartitions", "0", flexible=0, served="0",
    request="""
        Topics[]{Name:str}, ResponsePartitionLimit:i32(=2000),
        Cursor(null =null){TopicName:str, PartitionIndex:i32}
    """,
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            ErrorCode:i16, Name:str(null), TopicId:uuid, IsInternal:bool,
            Partitions[]{
                ErrorCode:i16, PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32(=-1),
                ReplicaNodes:[]i32, IsrNodes:[]i32, EligibleLeaderReplicas:[]i32(null =null),
                LastKnownElr:[]i32(null =null), OfflineReplicas:[]i32
            },
            TopicAuthorizedOperations:i32(=-2147483648)
        },
        NextCursor(null =null){TopicName:str, PartitionIndex:i32}
    """,
)  # fmt: skip
