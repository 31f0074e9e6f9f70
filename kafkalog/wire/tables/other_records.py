"""Records of `__transaction_state`, control records, what group members say to each other, and a
principal in an envelope."""

from __future__ import annotations

from kafkalog.wire.message import Message

__all__ = [
    "CONSUMER_ASSIGNMENT", "CONSUMER_SUBSCRIPTION", "CONTROL_RECORDS", "PRINCIPAL",
    "TRANSACTION_RECORDS",
]  # fmt: skip

TRANSACTION_RECORDS: dict[int, tuple[Message, Message]] = {
    0: (
        Message("TransactionLogKey", "0", None, "TransactionalId:str"),
        Message("TransactionLogValue", "0-1", 1, """
            ProducerId:i64, PreviousProducerId:i64(1+ tag0 =-1),
            NextProducerId:i64(1+ tag1 =-1), ProducerEpoch:i16,
            NextProducerEpoch:i16(1+ tag3 =-1), TransactionTimeoutMs:i32, TransactionStatus:i8,
            TransactionPartitions[](null){Topic:str, PartitionIds:[]i32},
            TransactionLastUpdateTimestampMs:i64, TransactionStartTimestampMs:i64,
            ClientTransactionVersion:i16(1+ tag2)
        """),
    ),
}  # fmt: skip

CONTROL_RECORDS: dict[int, tuple[str, Message]] = {
    0: ("Abort", Message("EndTxnMarker", "0", None, """
            Version:i16, CoordinatorEpoch:i32
        """)),
    1: ("Commit", Message("EndTxnMarker", "0", None, """
            Version:i16, CoordinatorEpoch:i32
        """)),
    2: ("LeaderChange", Message("LeaderChangeMessage", "0-1", 0, """
            Version:i16, LeaderId:i32, Voters[]{VoterId:i32, VoterDirectoryId:uuid(1+)},
            GrantingVoters[]{VoterId:i32, VoterDirectoryId:uuid(1+)}
        """)),
    3: ("SnapshotHeader", Message("SnapshotHeaderRecord", "0", 0, """
            Version:i16, LastContainedLogTimestamp:i64
        """)),
    4: ("SnapshotFooter", Message("SnapshotFooterRecord", "0", 0, "Version:i16")),
    5: ("KRaftVersion", Message("KRaftVersionRecord", "0", 0, """
            Version:i16, KRaftVersion:i16
        """)),
    6: ("KRaftVoters", Message("VotersRecord", "0", 0, """
            Version:i16,
            Voters[]{
                VoterId:i32, VoterDirectoryId:uuid, Endpoints[]{Name:str, Host:str, Port:u16},
                KRaftVersionFeature{MinSupportedVersion:i16, MaxSupportedVersion:i16}
            }
        """)),
}  # fmt: skip

CONSUMER_SUBSCRIPTION = Message("ConsumerProtocolSubscription", "0-3", None, """
    Topics:[]str, UserData:bytes(null =null),
    OwnedPartitions[](1+){Topic:str, Partitions:[]i32}, GenerationId:i32(2+ =-1),
    RackId:str(3+ null =null)
""")  # fmt: skip

CONSUMER_ASSIGNMENT = Message("ConsumerProtocolAssignment", "0-3", None, """
    AssignedPartitions[]{Topic:str, Partitions:[]i32}, UserData:bytes(null =null)
""")  # fmt: skip

PRINCIPAL = Message("DefaultPrincipalData", "0", 0, """
    Type:str, Name:str, TokenAuthenticated:bool
""")  # fmt: skip
