"""Topics, settings, quotas."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ALTER_CONFIGS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CONFIGS",
    "INCREMENTAL_ALTER_CONFIGS",
    "LIST_CONFIG_RESOURCES",
]

CREATE_TOPICS = Api(
    19, "CreateTopics", "2-7", flexible=5, served="2-7",
    request="""
        Topics[]{
            Name:str, NumPartitions:i32, ReplicationFactor:i16,
            Assignments[]{PartitionIndex:i32, BrokerIds:[]i32},
            Configs[]{Name:str, Value:str(null)}
        },
        timeoutMs:i32(=60000), validateOnly:bool
    """,
    response="""
        ThrottleTimeMs:i32,
        Topics[]{
            Name:str, TopicId:uuid(7+), ErrorCode:i16, ErrorMessage:str(null),
            TopicConfigErrorCode:i16(5+ tag0), NumPartitions:i32(5+ =-1),
            ReplicationFactor:i16(5+ =-1),
            Configs[](5+ null){
                Name:str, Value:str(null), ReadOnly:bool, ConfigSource:i8(=-1), IsSensitive:bool
            }
        }
    """,
)  # fmt: skip

DELETE_TOPICS = Api(
    20, "DeleteTopics", "1-6", flexible=4, served="1-6",
    request="""
        Topics[](6+){Name:str(null =null), TopicId:uuid}, TopicNames:[]str(1-5), TimeoutMs:i32
    """,
    response="""
        ThrottleTimeMs:i32,
        Responses[]{
            Name:str(null6+), TopicId:uuid(6+), ErrorCode:i16, ErrorMessage:str(5+ null =null)
        }
    """,
)  # fmt: skip

DESCRIBE_CONFIGS = Api(
    32, "DescribeConfigs", "1-4", flexible=4, served="1-4",
    request="""
        Resources[]{ResourceType:i8, ResourceName:str, ConfigurationKeys:[]str(null)},
        IncludeSynonyms:bool, IncludeDocumentation:bool(3+)
    """,
    response="""
        ThrottleTimeMs:i32,
        Results[]{
            ErrorCode:i16, ErrorMessage:str(null), ResourceType:i8, ResourceName:str,
            Configs[]{
                Name:str, Value:str(null), ReadOnly:bool, ConfigSource:i8(=-1),
                IsSensitive:bool, Synonyms[]{Name:str, Value:str(null), Source:i8},
                ConfigType:i8(3+), Documentation:str(3+ null)
            }
        }
    """,
)  # fmt: skip

ALTER_CONFIGS = Api(
    33, "AlterConfigs", "0-2", flexible=2, served="0-2",
    request="""
        Resources[]{
            ResourceType:i8, ResourceName:str, Configs[]{Name:str, Value:str(null)}
        },
        ValidateOnly:bool
    """,
    response="""
        ThrottleTimeMs:i32,
        Responses[]{ErrorCode:i16, ErrorMessage:str(null), ResourceType:i8, ResourceName:str}
    """,
)  # fmt: skip

CREATE_PARTITIONS = Api(
    37, "CreatePartitions", "0-3", flexible=2, served="0-3",
    request="""
        Topics[]{
            Name:str, Count:i32, Assignments[](null){BrokerIds:[]i32}
        },
        TimeoutMs:i32, ValidateOnly:bool
    """,
    response="""
        ThrottleTimeMs:i32, Results[]{Name:str, ErrorCode:i16, ErrorMessage:str(null =null)}
    """,
)  # fmt: skip

INCREMENTAL_ALTER_CONFIGS = Api(
    44, "IncrementalAlterConfigs", "0-1", flexible=1, served="0-1",
    request="""
        Resources[]{
            ResourceType:i8, ResourceName:str,
            Configs[]{Name:str, ConfigOperation:i8, Value:str(null)}
        },
        ValidateOnly:bool
    """,
    response="""
        ThrottleTimeMs:i32,
        Responses[]{ErrorCode:i16, ErrorMessage:str(null), ResourceType:i8, ResourceName:str}
    """,
)  # fmt: skip

LIST_CONFIG_RESOURCES = Api(
    74, "ListConfigResources", "0-1", flexible=0, served="0-1",
    request="ResourceTypes:[]i8(1+)",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16,
        ConfigResources[]{ResourceName:str, ResourceType:i8(1+ =16)}
    """,
)  # fmt: skip
