"""The refusal of a request to a consumer group."""

from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Refusal"]


class Refusal(Exception):
    """Why a request is refused, as its answer says it."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code, self.message = code, message
