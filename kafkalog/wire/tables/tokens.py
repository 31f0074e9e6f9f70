"""Delegation tokens."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "CREATE_DELEGATION_TOKEN",
    "DESCRIBE_DELEGATION_TOKEN",
    "EXPIRE_DELEGATION_TOKEN",
    "RENEW_DELEGATION_TOKEN",
]

CREATE_DELEGATION_TOKEN = Api(
    38, "CreateDelegationToken", "1-3", flexible=2, served="1-3",
    request="""
        OwnerPrincipalType:str(3+ null), OwnerPrincipalName:str(3+ null),
        Renewers[]{PrincipalType:str, PrincipalName:str}, MaxLifetimeMs:i64
    """,
    response="""
        ErrorCode:i16, PrincipalType:str, PrincipalName:str,
        TokenRequesterPrincipalType:str(3+), TokenRequesterPrincipalName:str(3+),
        IssueTimestampMs:i64, ExpiryTimestampMs:i64, MaxTimestampMs:i64, TokenId:str,
        Hmac:bytes, ThrottleTimeMs:i32
    """,
)  # fmt: skip

RENEW_DELEGATION_TOKEN = Api(
    39, "RenewDelegationToken", "1-2", flexible=2, served="1-2",
    request="Hmac:bytes, RenewPeriodMs:i64",
    response="ErrorCode:i16, ExpiryTimestampMs:i64, ThrottleTimeMs:i32",
)  # fmt: skip

EXPIRE_DELEGATION_TOKEN = Api(
    40, "ExpireDelegationToken", "1-2", flexible=2, served="1-2",
    request="Hmac:bytes, ExpiryTimePeriodMs:i64",
    response="ErrorCode:i16, ExpiryTimestampMs:i64, ThrottleTimeMs:i32",
)  # fmt: skip

DESCRIBE_DELEGATION_TOKEN = Api(
    41, "DescribeDelegationToken", "1-3", flexible=2, served="1-3",
    request="Owners[](null){PrincipalType:str, PrincipalName:str}",
    response="""
        ErrorCode:i16,
        Tokens[]{
            PrincipalType:str, PrincipalName:str, TokenRequesterPrincipalType:str(3+),
            TokenRequesterPrincipalName:str(3+), IssueTimestamp:i64, ExpiryTimestamp:i64,
            MaxTimestamp:i64, TokenId:str, Hmac:bytes,
            Renewers[]{PrincipalType:str, PrincipalName:str}
        },
        ThrottleTimeMs:i32
    """,
)  # fmt: skip
