"""The quotas of clients."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "ALTER_CLIENT_QUOTAS",
    "DESCRIBE_CLIENT_QUOTAS",
]

DESCRIBE_CLIENT_QUOTAS = Api(
    48, "DescribeClientQuotas", "0-1", flexible=1, served="0-1",
    request="Components[]{EntityType:str, MatchType:i8, Match:str(null)}, Strict:bool",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null),
        Entries[](null){
            Entity[]{EntityType:str, EntityName:str(null)}, Values[]{Key:str, Value:f64}
        }
    """,
)  # fmt: skip

ALTER_CLIENT_QUOTAS = Api(
    49, "AlterClientQuotas", "0-1", flexible=1, served="0-1",
    request="""
        Entries[]{
            Entity[]{EntityType:str, EntityName:str(null)},
            Ops[]{Key:str, Value:f64, Remove:bool}
        },
        ValidateOnly:bool
    """,
    response="""
        ThrottleTimeMs:i32,
        Entries[]{
            ErrorCode:i16, ErrorMessage:str(null),
            Entity[]{EntityType:str, EntityName:str(null)}
        }
    """,
)  # fmt: skip
