"""Requests between the nodes of a KRaft quorum, and of brokers to its controllers."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ADD_RAFT_VOTER",
    "ASSIGN_REPLICAS_TO_DIRS",
    "BEGIN_QUORUM_EPOCH",
    "BROKER_HEARTBEAT",
    "BROKER_REGISTRATION",
    "CONTROLLER_REGISTRATION",
    "END_QUORUM_EPOCH",
    "ENVELOPE",
    "FETCH_SNAPSHOT",
    "REMOVE_RAFT_VOTER",
    "UPDATE_RAFT_VOTER",
    "VOTE",
]

VOTE = Api(
    52, "Vote", "0-2", flexible=0,
    request="""
        ClusterId:str(null =null), VoterId:i32(1+ =-1),
        Topics[]{
            TopicName:str,
            Partitions[]{
                PartitionIndex:i32, ReplicaEpoch:i32, ReplicaId:i32,
                ReplicaDirectoryId:uuid(1+), VoterDirectoryId:uuid(1+), LastOffsetEpoch:i32,
                LastOffset:i64, PreVote:bool(2+)
            }
        }
    """,
    response="""
        ErrorCode:i16,
        Topics[]{
            TopicName:str,
            Partitions[]{
                PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32,
                VoteGranted:bool
            }
        },
        NodeEndpoints[](1+ tag0){NodeId:i32, Host:str, Port:u16}
    """,
)  # fmt: skip

BEGIN_QUORUM_EPOCH = Api(
    53, "BeginQuorumEpoch", "0-1", flexible=1,
    request="""
        ClusterId:str(null =null), VoterId:i32(1+ =-1),
        Topics[]{
            TopicName:str,
            Partitions[]{
                PartitionIndex:i32, VoterDirectoryId:uuid(1+), LeaderId:i32, LeaderEpoch:i32
            }
        },
        LeaderEndpoints[](1+){Name:str, Host:str, Port:u16}
    """,
    response="""
        ErrorCode:i16,
        Topics[]{
            TopicName:str,
            Partitions[]{PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32}
        },
        NodeEndpoints[](1+ tag0){NodeId:i32, Host:str, Port:u16}
    """,
)  # fmt: skip

END_QUORUM_EPOCH = Api(
    54, "EndQuorumEpoch", "0-1", flexible=1,
    request="""
        ClusterId:str(null =null),
        Topics[]{
            TopicName:str,
            Partitions[]{
                PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32, PreferredSuccessors:[]i32(0),
                PreferredCandidates[](1+){CandidateId:i32, CandidateDirectoryId:uuid}
            }
        },
        LeaderEndpoints[](1+){Name:str, Host:str, Port:u16}
    """,
    response="""
        ErrorCode:i16,
        Topics[]{
            TopicName:str,
            Partitions[]{PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32}
        },
        NodeEndpoints[](1+ tag0){NodeId:i32, Host:str, Port:u16}
    """,
)  # fmt: skip

ENVELOPE = Api(
    58, "Envelope", "0", flexible=0,
    request="RequestData:bytes, RequestPrincipal:bytes(null), ClientHostAddress:bytes",
    response="ResponseData:bytes(null =null), ErrorCode:i16",
)  # fmt: skip

FETCH_SNAPSHOT = Api(
    59, "FetchSnapshot", "0-1", flexible=0,
    request="""
        ClusterId:str(null tag0 =null), ReplicaId:i32(=-1), MaxBytes:i32(=2147483647),
        Topics[]{
            Name:str,
            Partitions[]{
                Partition:i32, CurrentLeaderEpoch:i32, SnapshotId{EndOffset:i64, Epoch:i32},
                Position:i64, ReplicaDirectoryId:uuid(1+ tag0)
            }
        }
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16,
        Topics[]{
            Name:str,
            Partitions[]{
                Index:i32, ErrorCode:i16, SnapshotId{EndOffset:i64, Epoch:i32},
                CurrentLeader(tag0){LeaderId:i32, LeaderEpoch:i32}, Size:i64, Position:i64,
                UnalignedRecords:records
            }
        },
        NodeEndpoints[](1+ tag0){NodeId:i32, Host:str, Port:u16}
    """,
)  # fmt: skip

BROKER_REGISTRATION = Api(
    62, "BrokerRegistration", "0-4", flexible=0,
    request="""
        BrokerId:i32, ClusterId:str, IncarnationId:uuid,
        Listeners[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
        Features[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}, Rack:str(null),
        IsMigratingZkBroker:bool(1+), LogDirs:[]uuid(2+), PreviousBrokerEpoch:i64(3+ =-1)
    """,
    response="ThrottleTimeMs:i32, ErrorCode:i16, BrokerEpoch:i64(=-1)",
)  # fmt: skip

BROKER_HEARTBEAT = Api(
    63, "BrokerHeartbeat", "0-2", flexible=0,
    request="""
        BrokerId:i32, BrokerEpoch:i64(=-1), CurrentMetadataOffset:i64, WantFence:bool,
        WantShutDown:bool, OfflineLogDirs:[]uuid(1+ tag0),
        CordonedLogDirs:[]uuid(2+ null tag1 =null)
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, IsCaughtUp:bool, IsFenced:bool(=true),
        ShouldShutDown:bool
    """,
)  # fmt: skip

CONTROLLER_REGISTRATION = Api(
    70, "ControllerRegistration", "0", flexible=0,
    request="""
        ControllerId:i32, IncarnationId:uuid, ZkMigrationReady:bool,
        Listeners[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
        Features[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}
    """,
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null)",
)  # fmt: skip

ASSIGN_REPLICAS_TO_DIRS = Api(
    73, "AssignReplicasToDirs", "0", flexible=0,
    request="""
        BrokerId:i32, BrokerEpoch:i64(=-1),
        Directories[]{
            Id:uuid, Topics[]{TopicId:uuid, Partitions[]{PartitionIndex:i32}}
        }
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16,
        Directories[]{
            Id:uuid,
            Topics[]{
                TopicId:uuid, Partitions[]{PartitionIndex:i32, ErrorCode:i16}
            }
        }
    """,
)  # fmt: skip

ADD_RAFT_VOTER = Api(
    80, "AddRaftVoter", "0-1", flexible=0,
    request="""
        ClusterId:str(null), TimeoutMs:i32, VoterId:i32, VoterDirectoryId:uuid,
        Listeners[]{Name:str, Host:str, Port:u16}, AckWhenCommitted:bool(1+ =true)
    """,
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null)",
)  # fmt: skip

REMOVE_RAFT_VOTER = Api(
    81, "RemoveRaftVoter", "0", flexible=0,
    request="ClusterId:str(null), VoterId:i32, VoterDirectoryId:uuid",
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null)",
)  # fmt: skip

UPDATE_RAFT_VOTER = Api(
    82, "UpdateRaftVoter", "0", flexible=0,
    request="""
        ClusterId:str(null), CurrentLeaderEpoch:i32, VoterId:i32, VoterDirectoryId:uuid,
        Listeners[]{Name:str, Host:str, Port:u16},
        KRaftVersionFeature{MinSupportedVersion:i16, MaxSupportedVersion:i16}
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16,
        CurrentLeader(tag0){LeaderId:i32(=-1), LeaderEpoch:i32(=-1), Host:str, Port:i32}
    """,
)  # fmt: skip
