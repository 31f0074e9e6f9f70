"""A broker's settings of quotas: over which time the use of clients is measured."""

from kafkalog.config.declare import Settings, Whole

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
