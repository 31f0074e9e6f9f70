"""The settings of an admin client, by the names of Kafka's clients."""

from kafkalog.config.client import ClientConfig
from kafkalog.config.declare import Whole

__all__ = ["AdminConfig"]


class AdminConfig(ClientConfig):
    """Timeouts and retries of an admin client."""

    connections_max_idle_ms = Whole(
        300_000,
        "Time after which an unused connection is closed; -1: never.",
        unit="ms",
        low=-1,
    )
    default_api_timeout_ms = Whole(60_000, "For one call, retries included.", unit="ms", low=1)
