"""Access control lists."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_ACLS"]

DESCRIBE_ACLS = Api(
    29, "DescribeAcls", "1-3", flexible=2, served="1-3",
    request="""
        ResourceTypeFilter:i8, ResourceNameFilter:str(null), PatternTypeFilter:i8(=3),
        PrincipalFilter:str(null), HostFilter:str(null), Operation:i8, PermissionType:i8
    """,
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null),
        Resources[]{
            ResourceType:i8, ResourceName:str, PatternType:i8(=3),
            Acls[]{Principal:str, Host:str, Operation:i8, PermissionType:i8}
        }
    """,
)  # fmt: skip

CREATE_ACLS = Api(
    30, "CreateAcls", "1-3", flexible=2, served="1-3",
    request="""
        Creations[]{
            ResourceType:i8, ResourceName:str, ResourcePatternType:i8(=3), Principal:str,
            Host:str, Operation:i8, PermissionType:i8
        }
    """,
    response="ThrottleTimeMs:i32, Results[]{ErrorCode:i16, ErrorMessage:str(null)}",
)  # fmt: skip

DELETE_ACLS = Api(
    31, "DeleteAcls", "1-3", flexible=2, served="1-3",
    request="""
        Filters[]{
            ResourceTypeFilter:i8, ResourceNameFilter:str(null), PatternTypeFilter:i8(=3),
            PrincipalFilter:str(null), HostFilter:str(null), Operation:i8, PermissionType:i8
        }
    """,
    response="""
        ThrottleTimeMs:i32,
        FilterResults[]{
            ErrorCode:i16, ErrorMessage:str(null),
            MatchingAcls[]{
                ErrorCode:i16, ErrorMessage:str(null), ResourceType:i8, ResourceName:str,
                PatternType:i8(=3), Principal:str, Host:str, Operation:i8, PermissionType:i8
            }
        }
    """,
)  # fmt: skip
