"""SCRAM credentials of users."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["ALTER_USER_SCRAM_CREDENTIALS", "DESCRIBE_USER_SCRAM_CREDENTIALS"]

DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    50, "DescribeUserScramCredentials", "0", flexible=0, served="0",
    request="Users[](null){Name:str}",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null),
        Results[]{
            User:str, ErrorCode:i16, ErrorMessage:str(null),
            CredentialInfos[]{Mechanism:i8, Iterations:i32}
        }
    """,
)  # fmt: skip

ALTER_USER_SCRAM_CREDENTIALS = Api(
    51, "AlterUserScramCredentials", "0", flexible=0, served="0",
    request="""
        Deletions[]{Name:str, Mechanism:i8},
        Upsertions[]{Name:str, Mechanism:i8, Iterations:i32, Salt:bytes, SaltedPassword:bytes}
    """,
    response="ThrottleTimeMs:i32, Results[]{User:str, ErrorCode:i16, ErrorMessage:str(null)}",
)  # fmt: skip
