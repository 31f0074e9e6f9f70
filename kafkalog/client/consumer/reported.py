"""The metrics of a consumer: for its program, and for brokers that subscribe to them."""

from __future__ import annotations

from uuid import UUID

from kafkalog.client.consumer.committer import Committer
from kafkalog.client.consumer.group_heartbeats import GroupHeartbeats
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.heartbeat import HeartbeatThread
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.consumer.positions import Positions
from kafkalog.client.metrics import Idle, consumer_metrics
from kafkalog.client.telemetry.payload import Figures, of_owner
from kafkalog.client.telemetry.reporter import Reporter
from kafkalog.config.consumer import ConsumerConfig

__all__ = ["Reported"]


class Reported(Positions):
    """The part of a consumer that counts."""

    _config: ConsumerConfig
    _heartbeats: HeartbeatThread | GroupHeartbeats
    _membership: Membership | GroupMembership | None
    _committer: Committer

    def _begin_metrics(self) -> None:
        self._reporter = Reporter(self._cluster, "consumer", of_owner(self))
        self._reports = False
        self._idle = Idle()

    def _report(self) -> None:
        """In the turns of a poll: find out if a broker wants metrics; from then on the thread that
        commits sends them."""
        if not self._reports and self._reporter.wanted(self._cluster):
            self._reports = True
            self._committer.report(self._reporter)

    def _figures(self) -> Figures:
        """Those for brokers."""
        opened = self._cluster.openings.count + self._committer.cluster.openings.count
        values = {**self.metrics(), "connection-creation-total": float(opened),
                  "poll-idle-ratio-avg": self._idle.ratio.avg}  # fmt: skip
        return Figures(values, dict(self._fetcher.nodes))

    def _labels(self) -> dict[str, str]:
        config, member = self._config, self._membership
        return {
            "client_rack": config.client_rack, "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": "" if member is None else self._state.identity().member_id,
        }  # fmt: skip

    def metrics(self) -> dict[str, float]:
        """Counts and averages so far, by the names of Kafka's metrics (docs/clients.md lists them).
        From any thread, also after `close`."""
        self._here()
        fetcher, member, assigned = self._fetcher, self._membership, sorted(self._state.assigned)
        lags = (self._reading.lag(tp, self._fetch_positions.stable_only) for tp in assigned)
        return {
            "records-consumed-total": float(self._reading.count),
            "records-lag-max": float(max(lags, default=0)),
            "assigned-partitions": float(len(assigned)),
            "rebalance-total": float(member.member.rebalances if member else 0),
            **consumer_metrics(
                fetcher.fetch_bytes, fetcher.fetch_ms, self._committer.commit_ms,
                self._heartbeats.beat_ms,
            ),
        }  # fmt: skip

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """The id under which brokers know this client's metrics (KIP-714); it is asked for if none
        has given one yet.

        Raises: ArgumentError: enable.metrics.push is false; UnsupportedVersion: the broker takes no
        metrics; Timeout.
        """
        with self._used(timeout_ms):
            return self._reporter.instance_id(self._cluster)
