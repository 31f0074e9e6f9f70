"""A broker's settings of quotas: over which time the use of clients is measured."""

from collections.abc import Mapping

from kafkalog.config.declare import Settings, Whole, Words

__all__ = ["QuotaConfig"]

UNLIMITED = (1 << 31) - 1


class QuotaConfig(Settings):
    """Settings of client quotas and of connection rates, under Kafka's names."""

    quota_window_num = Whole(
        11,
        "Number of windows over which the rates of client quotas and new connections are measured.",
        low=1,
        high=1000,
    )
    quota_window_size_seconds = Whole(1, "How long each window is.", unit="s", low=1)
    controller_quota_window_num = Whole(
        11,
        "A client may create and delete as many partitions at once as controller_mutation_rate "
        "allows in this number of windows.",
        low=1,
    )
    controller_quota_window_size_seconds = Whole(1, "How long each window is.", unit="s", low=1)
    max_connection_creation_rate = Whole(
        UNLIMITED,
        "New connections a second; above it, they are accepted later.",
        low=1,
    )
    max_connections_per_ip_overrides = Words(
        (),
        "Addresses or host names with a max.connections.per.ip of their own.",
        pattern=r".+:[0-9]{1,9}",
        example="HOST:COUNT",
    )

    @property
    def connections_of_ips(self) -> Mapping[str, int]:
        """The connections that an address or host may have at the same time, by name."""
        pairs = (text.rpartition(":") for text in self.max_connections_per_ip_overrides)
        return {name.strip("[]"): int(count) for name, _, count in pairs}
