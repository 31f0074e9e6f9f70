"""A member of a share group: which heartbeat is due, and the thread that sends it."""

from __future__ import annotations

from typing import Any

from kafkalog.client.consumer.group_heartbeats import GroupHeartbeats
from kafkalog.client.consumer.group_session import GroupSession
from kafkalog.wire import apis

__all__ = ["ShareHeartbeats", "ShareMemberSession"]


class ShareMemberSession(GroupSession):
    """As GroupSession.  The coordinator gives one partition to many members: a member does not
    report what it has, and there are no patterns."""

    def _body(self, epoch: int) -> dict[str, Any]:
        options = self.options
        return {
            "group_id": options.group, "member_id": options.member_id, "member_epoch": epoch,
            "rack_id": None, "subscribed_topic_names": None,
        }  # fmt: skip

    def _said(self) -> dict[str, Any]:
        body = self._body(self.epoch)
        if self._full or self._wanted != self._sent:
            body["subscribed_topic_names"] = list(self._wanted[0])
        if self._full:
            body["rack_id"] = self.options.rack
        return body


class ShareHeartbeats(GroupHeartbeats):
    """As GroupHeartbeats, for a share group."""

    Session = ShareMemberSession
    Api = apis.SHARE_GROUP_HEARTBEAT
