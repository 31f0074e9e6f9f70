"""Records of `__share_group_state`: key and value of each kind, which the key begins with."""

from __future__ import annotations

from kafkalog.wire.message import Message

__all__ = ["SHARE_STATE_RECORDS"]

SHARE_STATE_RECORDS: dict[int, tuple[Message, Message]] = {
    0: (
        Message("ShareSnapshotKey", "0", None, "GroupId:str, TopicId:uuid, Partition:i32"),
        Message("ShareSnapshotValue", "0", 0, """
            SnapshotEpoch:i32, StateEpoch:i32, LeaderEpoch:i32, StartOffset:i64,
            DeliveryCompleteCount:i32(tag0 =-1), CreateTimestamp:i64, WriteTimestamp:i64,
            StateBatches[]{
                FirstOffset:i64, LastOffset:i64, DeliveryState:i8, DeliveryCount:i16
            }
        """),
    ),
    1: (
        Message("ShareUpdateKey", "0", None, "GroupId:str, TopicId:uuid, Partition:i32"),
        Message("ShareUpdateValue", "0", 0, """
            SnapshotEpoch:i32, LeaderEpoch:i32, StartOffset:i64,
            DeliveryCompleteCount:i32(tag0 =-1),
            StateBatches[]{
                FirstOffset:i64, LastOffset:i64, DeliveryState:i8, DeliveryCount:i16
            }
        """),
    ),
}  # fmt: skip
