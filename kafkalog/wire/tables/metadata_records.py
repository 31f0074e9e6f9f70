"""Records of `__cluster_metadata`, by their kind (KRaft)."""

from __future__ import annotations

from kafkalog.wire.message import Message

__all__ = ["METADATA_RECORDS"]

METADATA_RECORDS: dict[int, Message] = {
    0: Message("RegisterBrokerRecord", "0-4", 0, """
        BrokerId:i32, IsMigratingZkBroker:bool(2+), IncarnationId:uuid, BrokerEpoch:i64,
        EndPoints[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
        Features[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}, Rack:str(null),
        Fenced:bool(=true), InControlledShutdown:bool(1+), LogDirs:[]uuid(3+ tag0),
        CordonedLogDirs:[]uuid(4+ null tag1 =null)
    """),
    1: Message("UnregisterBrokerRecord", "0", 0, """
        BrokerId:i32, BrokerEpoch:i64
    """),
    2: Message("TopicRecord", "0", 0, "Name:str, TopicId:uuid"),
    3: Message("PartitionRecord", "0-2", 0, """
        PartitionId:i32(=-1), TopicId:uuid, Replicas:[]i32, Isr:[]i32, RemovingReplicas:[]i32,
        AddingReplicas:[]i32, Leader:i32(=-1), LeaderRecoveryState:i8(tag0),
        LeaderEpoch:i32(=-1), PartitionEpoch:i32(=-1), Directories:[]uuid(1+),
        EligibleLeaderReplicas:[]i32(2+ null tag1 =null), LastKnownElr:[]i32(2+ null tag2 =null)
    """),
    4: Message("ConfigRecord", "0", 0, """
        ResourceType:i8, ResourceName:str, Name:str, Value:str(null)
    """),
    5: Message("PartitionChangeRecord", "0-2", 0, """
        PartitionId:i32(=-1), TopicId:uuid, Isr:[]i32(null tag0 =null), Leader:i32(tag1 =-2),
        Replicas:[]i32(null tag2 =null), RemovingReplicas:[]i32(null tag3 =null),
        AddingReplicas:[]i32(null tag4 =null), LeaderRecoveryState:i8(tag5 =-1),
        Directories:[]uuid(1+ null tag8 =null),
        EligibleLeaderReplicas:[]i32(2+ null tag6 =null), LastKnownElr:[]i32(2+ null tag7 =null)
    """),
    7: Message("FenceBrokerRecord", "0", 0, "Id:i32, Epoch:i64"),
    8: Message("UnfenceBrokerRecord", "0", 0, "Id:i32, Epoch:i64"),
    9: Message("RemoveTopicRecord", "0", 0, "TopicId:uuid"),
    10: Message("DelegationTokenRecord", "0", 0, """
        Owner:str, Requester:str, Renewers:[]str, IssueTimestamp:i64, MaxTimestamp:i64,
        ExpirationTimestamp:i64, TokenId:str
    """),
    11: Message("UserScramCredentialRecord", "0", 0, """
        Name:str, Mechanism:i8, Salt:bytes, StoredKey:bytes, ServerKey:bytes, Iterations:i32
    """),
    12: Message("FeatureLevelRecord", "0", 0, "Name:str, FeatureLevel:i16"),
    14: Message("ClientQuotaRecord", "0", 0, """
        Entity[]{EntityType:str, EntityName:str(null)}, Key:str, Value:f64, Remove:bool
    """),
    15: Message("ProducerIdsRecord", "0", 0, """
        BrokerId:i32, BrokerEpoch:i64(=-1), NextProducerId:i64
    """),
    17: Message("BrokerRegistrationChangeRecord", "0-3", 0, """
        BrokerId:i32, BrokerEpoch:i64, Fenced:i8(tag0), InControlledShutdown:i8(1+ tag1),
        LogDirs:[]uuid(2+ tag2), CordonedLogDirs:[]uuid(3+ null tag3 =null)
    """),
    18: Message("AccessControlEntryRecord", "0", 0, """
        Id:uuid, ResourceType:i8, ResourceName:str, PatternType:i8, Principal:str, Host:str,
        Operation:i8, PermissionType:i8
    """),
    19: Message("RemoveAccessControlEntryRecord", "0", 0, "Id:uuid"),
    20: Message("NoOpRecord", "0", 0, ""),
    21: Message("ZkMigrationStateRecord", "0", 0, "ZkMigrationState:i8"),
    22: Message("RemoveUserScramCredentialRecord", "0", 0, """
        Name:str, Mechanism:i8
    """),
    23: Message("BeginTransactionRecord", "0", 0, "Name:str(null tag0 =null)"),
    24: Message("EndTransactionRecord", "0", 0, ""),
    25: Message("AbortTransactionRecord", "0", 0, "Reason:str(null tag0 =null)"),
    26: Message("RemoveDelegationTokenRecord", "0", 0, "TokenId:str"),
    27: Message("RegisterControllerRecord", "0", 0, """
        ControllerId:i32, IncarnationId:uuid, ZkMigrationReady:bool,
        EndPoints[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
        Features[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}
    """),
    28: Message("ClearElrRecord", "0", 0, "TopicName:str"),
    29: Message("UnregisterControllerRecord", "0", 0, "ControllerId:i32"),
}  # fmt: skip
