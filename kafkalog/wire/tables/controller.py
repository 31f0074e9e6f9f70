"""Requests between a controller of the ZooKeeper era and the brokers.

Kafka 3.9 speaks these with inter.broker.protocol.version 3.9; Kafka 4 knows them no more, so they
are not among `apis.BY_KEY`.  AlterPartition and AllocateProducerIds lived on (tables/internal).
Of each the versions with topic ids; a broker of that era announces its own for them.
"""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["CONTROLLED_SHUTDOWN", "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA"]

LEADER_AND_ISR = Api(
    4, "LeaderAndIsr", "5-7", flexible=4,
    request="""
        ControllerId:i32, isKRaftController:bool(7+), ControllerEpoch:i32, BrokerEpoch:i64(=-1),
        Type:i8,
        TopicStates[]{
            TopicName:str, TopicId:uuid,
            PartitionStates[]{
                PartitionIndex:i32, ControllerEpoch:i32, Leader:i32, LeaderEpoch:i32, Isr:[]i32,
                PartitionEpoch:i32, Replicas:[]i32, AddingReplicas:[]i32, RemovingReplicas:[]i32,
                IsNew:bool, LeaderRecoveryState:i8(6+)
            }
        },
        LiveLeaders[]{BrokerId:i32, HostName:str, Port:i32}
    """,
    response="""
        ErrorCode:i16,
        Topics[]{TopicId:uuid, PartitionErrors[]{PartitionIndex:i32, ErrorCode:i16}}
    """,
)  # fmt: skip

STOP_REPLICA = Api(
    5, "StopReplica", "3-4", flexible=2,
    request="""
        ControllerId:i32, isKRaftController:bool(4+), ControllerEpoch:i32, BrokerEpoch:i64(=-1),
        TopicStates[]{
            TopicName:str,
            PartitionStates[]{PartitionIndex:i32, LeaderEpoch:i32(=-1), DeletePartition:bool}
        }
    """,
    response="""
        ErrorCode:i16,
        PartitionErrors[]{TopicName:str, PartitionIndex:i32, ErrorCode:i16}
    """,
)  # fmt: skip

UPDATE_METADATA = Api(
    6, "UpdateMetadata", "7-8", flexible=6,
    request="""
        ControllerId:i32, isKRaftController:bool(8+), Type:i8(8+ tag0), ControllerEpoch:i32,
        BrokerEpoch:i64(=-1),
        TopicStates[]{
            TopicName:str, TopicId:uuid,
            PartitionStates[]{
                PartitionIndex:i32, ControllerEpoch:i32, Leader:i32, LeaderEpoch:i32, Isr:[]i32,
                ZkVersion:i32, Replicas:[]i32, OfflineReplicas:[]i32
            }
        },
        LiveBrokers[]{
            Id:i32,
            Endpoints[]{Port:i32, Host:str, Listener:str, SecurityProtocol:i16},
            Rack:str(null)
        }
    """,
    response="ErrorCode:i16",
)  # fmt: skip

CONTROLLED_SHUTDOWN = Api(
    7, "ControlledShutdown", "3", flexible=3,
    request="BrokerId:i32, BrokerEpoch:i64(=-1)",
    response="ErrorCode:i16, RemainingPartitions[]{TopicName:str, PartitionIndex:i32}",
)  # fmt: skip
