"""Records of `__consumer_offsets`: key and value of each kind, which the key begins with."""

from __future__ import annotations

from kafkalog.wire.message import Message

__all__ = ["OFFSETS_RECORDS"]

OFFSETS_RECORDS: dict[int, tuple[Message, Message]] = {
    0: (
        Message("LegacyOffsetCommitKey", "0", None, """
            group:str, topic:str, partition:i32
        """),
        Message("LegacyOffsetCommitValue", "0", None, """
            offset:i64, metadata:str, commitTimestamp:i64
        """),
    ),
    1: (
        Message("OffsetCommitKey", "0", None, """
            group:str, topic:str, partition:i32
        """),
        Message("OffsetCommitValue", "0-4", 4, """
            offset:i64, leaderEpoch:i32(3+ =-1), metadata:str, commitTimestamp:i64,
            expireTimestamp:i64(1 =-1), topicId:uuid(4+ tag0)
        """),
    ),
    2: (
        Message("GroupMetadataKey", "0", None, "group:str"),
        Message("GroupMetadataValue", "0-4", 4, """
            protocolType:str, generation:i32, protocol:str(null), leader:str(null),
            currentStateTimestamp:i64(2+ =-1),
            members[]{
                memberId:str, groupInstanceId:str(3+ null =null), clientId:str, clientHost:str,
                rebalanceTimeout:i32(1+ =-1), sessionTimeout:i32, subscription:bytes,
                assignment:bytes
            }
        """),
    ),
    3: (
        Message("ConsumerGroupMetadataKey", "0", None, "GroupId:str"),
        Message("ConsumerGroupMetadataValue", "0", 0, """
            Epoch:i32, MetadataHash:i64(tag0)
        """),
    ),
    4: (
        Message("ConsumerGroupPartitionMetadataKey", "0", None, """
            GroupId:str
        """),
        Message("ConsumerGroupPartitionMetadataValue", "0", 0, """
            Topics[]{
                TopicId:uuid, TopicName:str, NumPartitions:i32,
                PartitionMetadata[]{Partition:i32, Racks:[]str}
            }
        """),
    ),
    5: (
        Message("ConsumerGroupMemberMetadataKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ConsumerGroupMemberMetadataValue", "0", 0, """
            InstanceId:str(null), RackId:str(null), ClientId:str, ClientHost:str,
            SubscribedTopicNames:[]str, SubscribedTopicRegex:str(null),
            RebalanceTimeoutMs:i32(=-1), ServerAssignor:str(null),
            ClassicMemberMetadata(null tag0){
                SessionTimeoutMs:i32, SupportedProtocols[]{Name:str, Metadata:bytes}
            }
        """),
    ),
    6: (
        Message("ConsumerGroupTargetAssignmentMetadataKey", "0", None, """
            GroupId:str
        """),
        Message("ConsumerGroupTargetAssignmentMetadataValue", "0", 0, """
            AssignmentEpoch:i32, AssignmentTimestamp:i64(tag0)
        """),
    ),
    7: (
        Message("ConsumerGroupTargetAssignmentMemberKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ConsumerGroupTargetAssignmentMemberValue", "0", 0, """
            TopicPartitions[]{TopicId:uuid, Partitions:[]i32}
        """),
    ),
    8: (
        Message("ConsumerGroupCurrentMemberAssignmentKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ConsumerGroupCurrentMemberAssignmentValue", "0", 0, """
            MemberEpoch:i32, PreviousMemberEpoch:i32, State:i8,
            AssignedPartitions[]{
                TopicId:uuid, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            PartitionsPendingRevocation[]{
                TopicId:uuid, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            }
        """),
    ),
    10: (
        Message("ShareGroupMemberMetadataKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ShareGroupMemberMetadataValue", "0", 0, """
            RackId:str(null), ClientId:str, ClientHost:str, SubscribedTopicNames:[]str
        """),
    ),
    11: (
        Message("ShareGroupMetadataKey", "0", None, "GroupId:str"),
        Message("ShareGroupMetadataValue", "0", 0, """
            Epoch:i32, MetadataHash:i64
        """),
    ),
    12: (
        Message("ShareGroupTargetAssignmentMetadataKey", "0", None, """
            GroupId:str
        """),
        Message("ShareGroupTargetAssignmentMetadataValue", "0", 0, """
            AssignmentEpoch:i32, AssignmentTimestamp:i64(tag0)
        """),
    ),
    13: (
        Message("ShareGroupTargetAssignmentMemberKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ShareGroupTargetAssignmentMemberValue", "0", 0, """
            TopicPartitions[]{TopicId:uuid, Partitions:[]i32}
        """),
    ),
    14: (
        Message("ShareGroupCurrentMemberAssignmentKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("ShareGroupCurrentMemberAssignmentValue", "0", 0, """
            MemberEpoch:i32, PreviousMemberEpoch:i32, State:i8,
            AssignedPartitions[]{TopicId:uuid, Partitions:[]i32}
        """),
    ),
    15: (
        Message("ShareGroupStatePartitionMetadataKey", "0", None, """
            GroupId:str
        """),
        Message("ShareGroupStatePartitionMetadataValue", "0", 0, """
            InitializingTopics[]{TopicId:uuid, TopicName:str, Partitions:[]i32},
            InitializedTopics[]{TopicId:uuid, TopicName:str, Partitions:[]i32},
            DeletingTopics[]{TopicId:uuid, TopicName:str}
        """),
    ),
    16: (
        Message("ConsumerGroupRegularExpressionKey", "0", None, """
            GroupId:str, RegularExpression:str
        """),
        Message("ConsumerGroupRegularExpressionValue", "0", 0, """
            Topics:[]str, Version:i64, Timestamp:i64
        """),
    ),
    17: (
        Message("StreamsGroupMetadataKey", "0", None, "GroupId:str"),
        Message("StreamsGroupMetadataValue", "0", 0, """
            Epoch:i32, MetadataHash:i64, ValidatedTopologyEpoch:i32(tag0 =-1),
            LastAssignmentConfigs[](null tag1){Key:str, Value:str},
            StoredDescriptionTopologyEpoch:i32(tag2 =-1),
            FailedDescriptionTopologyEpoch:i32(tag3 =-1)
        """),
    ),
    19: (
        Message("StreamsGroupMemberMetadataKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("StreamsGroupMemberMetadataValue", "0", 0, """
            InstanceId:str(null), RackId:str(null), ClientId:str, ClientHost:str,
            RebalanceTimeoutMs:i32(=-1), TopologyEpoch:i32, ProcessId:str,
            UserEndpoint(null =null){Host:str, Port:u16}, ClientTags[]{Key:str, Value:str}
        """),
    ),
    20: (
        Message("StreamsGroupTargetAssignmentMetadataKey", "0", None, """
            GroupId:str
        """),
        Message("StreamsGroupTargetAssignmentMetadataValue", "0", 0, """
            AssignmentEpoch:i32, AssignmentTimestamp:i64(tag0)
        """),
    ),
    21: (
        Message("StreamsGroupTargetAssignmentMemberKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("StreamsGroupTargetAssignmentMemberValue", "0", 0, """
            ActiveTasks[]{SubtopologyId:str, Partitions:[]i32},
            StandbyTasks[]{SubtopologyId:str, Partitions:[]i32},
            WarmupTasks[]{SubtopologyId:str, Partitions:[]i32}
        """),
    ),
    22: (
        Message("StreamsGroupCurrentMemberAssignmentKey", "0", None, """
            GroupId:str, MemberId:str
        """),
        Message("StreamsGroupCurrentMemberAssignmentValue", "0", 0, """
            MemberEpoch:i32, PreviousMemberEpoch:i32, State:i8,
            ActiveTasks[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            StandbyTasks[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            WarmupTasks[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            ActiveTasksPendingRevocation[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            StandbyTasksPendingRevocation[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            },
            WarmupTasksPendingRevocation[]{
                SubtopologyId:str, Partitions:[]i32, AssignmentEpochs:[]i32(null tag0)
            }
        """),
    ),
    23: (
        Message("StreamsGroupTopologyKey", "0", None, "GroupId:str"),
        Message("StreamsGroupTopologyValue", "0", 0, """
            Epoch:i32,
            Subtopologies[]{
                SubtopologyId:str, SourceTopics:[]str, SourceTopicRegex:[]str,
                StateChangelogTopics[]{
                    Name:str, Partitions:i32, ReplicationFactor:i16,
                    TopicConfigs[]{key:str, value:str}
                },
                RepartitionSinkTopics:[]str,
                RepartitionSourceTopics[]{
                    Name:str, Partitions:i32, ReplicationFactor:i16,
                    TopicConfigs[]{key:str, value:str}
                },
                CopartitionGroups[]{
                    SourceTopics:[]i16, SourceTopicRegex:[]i16, RepartitionSourceTopics:[]i16
                }
            }
        """),
    ),
}  # fmt: skip
