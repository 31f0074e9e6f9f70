"""The broker's settings of delegation tokens."""

from kafkalog.config.declare import Long, Secret, Settings

__all__ = ["TokenSettings"]


class TokenSettings(Settings):
    """Delegation tokens (KIP-48), with which clients of a SCRAM listener may authenticate."""

    scope = "broker"

    delegation_token_secret_key = Secret(
        "The key from which the passwords of delegation tokens are derived; empty: there are none. "
        "With another key, the passwords of all tokens change."
    )
    delegation_token_max_lifetime_ms = Long(
        604_800_000,
        "Time after which a delegation token can no longer be renewed.",
        unit="ms",
        low=1,
    )
    delegation_token_expiry_time_ms = Long(
        86_400_000,
        "Time after which a delegation token expires unless it is renewed.",
        unit="ms",
        low=1,
    )
    delegation_token_expiry_check_interval_ms = Long(
        3_600_000, "How often expired delegation tokens are removed.", unit="ms", low=1
    )
