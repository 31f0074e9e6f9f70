"""The role of a partition in the data plane."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import ffi
from kafkalog.replication.followers import Follower

if TYPE_CHECKING:
    from kafkalog.log.handle import Handle

__all__ = ["RoleChange", "role_of"]


def role_of(
    *,
    leader_epoch: int,
    durable: bool,
    led_by: int | None = None,
    min_isr: int = 0,
    throttled: bool = False,
    hands_over: bool = False,
    tag: int = 0,
) -> Any:
    """A kl_role.

    `durable`: acks=all means on disk; `led_by`: the leader's node, -1 if unknown, None: this
    one; `min_isr`: in-sync replicas that acks=all needs; `throttled`: replicas that are not in sync
    are limited to the replication rate; `hands_over`: another node is about to lead it, and acks=1
    is refused while a replica may be in sync; `tag`: the caller's number for the partition.
    """
    follows, leader_id = (0, -1) if led_by is None else (1, led_by)
    flags = int(durable), follows, leader_id, min_isr, int(throttled), int(hands_over)
    return ffi.new("kl_role *", (leader_epoch, *flags, tag))


class RoleChange(NamedTuple):
    """A new role for a partition whose log is open."""

    log: "Handle"
    role: Mapping[str, Any]
    """The arguments of `role_of`."""
    followers: Sequence[Follower] = ()
    """Set if it is led here."""
