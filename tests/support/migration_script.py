"""Groups with members of both protocols, the same requests for Apache Kafka's broker and ours.

Member ids that a broker hands out are replaced by the script's names.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.records import CONSUMER_PROTOCOL, OFFSETS
from tests.support.consumer_group_script import SETTINGS, Script, told_records
from tests.support.raw import Raw

__all__ = ["SETTINGS", "Mixed", "live_groups"]

ALL = (0, 1, 2, 3, 4)
OWN = b"data of an assignor"


def subscribed(*topics: str, owned: Iterable[int] = (), version: int = 1) -> bytes:
    """A consumer's metadata; `owned`: partitions of the first topic."""
    parts = [{"topic": topics[0], "partitions": [*owned]}] if owned else []
    fields = {"topics": [*topics], "owned_partitions": parts}
    return CONSUMER_PROTOCOL.encode_subscription(version, fields)


def assignment(*numbers: int, data: bytes | None = None) -> bytes:
    """An assignment of partitions of the first topic."""
    parts = [{"topic": "t", "partitions": [*numbers]}] if numbers else []
    fields = {"assigned_partitions": parts, "user_data": data}
    return CONSUMER_PROTOCOL.encode_assignment(1, fields)


class Mixed(Script):
    """One broker, and its transcript of groups with members of both protocols."""

    def __init__(self, raw: Raw) -> None:
        super().__init__(raw)
        self.names: dict[str, str] = {}
        """The script's names of member ids."""
        self.told: dict[str, int] = {}
        """The generations of classic members."""

    def named(self, value: Any) -> Any:
        """As Script.named; member ids, too."""
        return self.names.get(value, super().named(value)) if isinstance(value, str) else (
            super().named(value)
        )  # fmt: skip

    def id_of(self, name: str) -> str:
        return next((one for one, known in self.names.items() if known == name), name)

    def ask(self, label: str, api: Api, version: int, **body: Any) -> Any:
        """A request about the group, and its answer in the transcript."""
        found = self.raw.call(api, version, group_id=self.group, **body)
        if label.startswith("join") and found.member_id:
            self.names.setdefault(found.member_id, label.split()[1])
        return self.note(f"{self.group}: {label}", found)

    def note(self, label: str, body: Any) -> Any:
        """As Script.note; the label may have member ids."""
        words = [self.names.get(word, word) for word in label.split(" ")]
        return super().note(" ".join(words), body)

    # ---- requests --------------------------------------------------------------------------

    def join(self, name: str, *owned: int, version: int = 9, **fields: Any) -> Any:
        """JoinGroup; a member without an id comes again with the one it got."""
        topics = fields.pop("topics", ("t",))
        body = {
            "session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000,
            "member_id": self.id_of(name) if name in self.names.values() else "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscribed(*topics, owned=owned)}],
            **fields,
        }  # fmt: skip
        found = self.ask(f"join {name} {sorted(fields)}", apis.JOIN_GROUP, version, **body)
        if found.error_code == 79:
            body["member_id"] = found.member_id
            found = self.ask(f"join {name} again", apis.JOIN_GROUP, version, **body)
        if not found.error_code:
            self.told[name] = found.generation_id
        return found

    def sync(self, name: str, given: bytes = b"", **fields: Any) -> Any:
        """SyncGroup; `given`: the assignment of the member, which leads."""
        member_id = self.id_of(name)
        entries = [{"member_id": member_id, "assignment": given}] if given else []
        body = {
            "generation_id": self.told.get(name, 0), "member_id": member_id,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": entries,
            **fields,
        }  # fmt: skip
        return self.ask(f"sync {name} {sorted(fields)}", apis.SYNC_GROUP, 5, **body)

    def pulse(self, name: str, **fields: Any) -> Any:
        """Heartbeat."""
        generation = self.told.get(name, 0)
        body = {"member_id": self.id_of(name), "generation_id": generation, **fields}
        return self.ask(f"heartbeat {name} {sorted(fields)}", apis.HEARTBEAT, 4, **body)

    def leave(self, *named: tuple[str, str | None]) -> Any:
        """LeaveGroup."""
        members = [
            {"member_id": self.id_of(name), "group_instance_id": instance_id}
            for name, instance_id in named
        ]
        return self.ask(f"leave {named}", apis.LEAVE_GROUP, 5, members=members)

    def look(self) -> None:
        """The group, as each request for it shows it."""
        self.describe()
        self.note("described", self.raw.call(apis.DESCRIBE_GROUPS, 6, groups=[self.group]))
        listed = self.raw.call(apis.LIST_GROUPS, 5).groups
        self.note("listed", [one for one in listed if one.group_id == self.group])

    def classic(self, name: str, given: bytes, **fields: Any) -> None:
        """A classic group of one member, in its first generation."""
        self.join(name, **fields)
        kept = {key: fields[key] for key in ("group_instance_id", "protocol_type") if key in fields}
        self.sync(name, given, **kept)

    # ---- the script ------------------------------------------------------------------------

    def run(self) -> None:
        """The lives of several groups."""
        for part in (self.rolling, self.joined, self.static, self.unreadable, self.checked):
            self.group = part.__name__
            self.epochs, self.owned, self.told = {}, {}, {}
            part()

    def rolling(self) -> None:
        """A classic member, then one that heartbeats in addition, then alone again."""
        self.classic("c", assignment(*ALL))
        self.look()
        self.beat("x", 3)
        self.enter("n", "t")
        self.look()
        self.pulse("c")
        self.commit(self.id_of("c"), 1, 0)
        self.commit(self.id_of("c"), 2, 0)
        self.fetch(self.id_of("c"), 1)
        self.join("c", *ALL)
        self.sync("c")
        self.pulse("c")
        self.join("c", 0, 1, 2)
        self.sync("c")
        self.pulse("c")
        for _ in range(2):
            self.beat("n")
        self.look()
        self.beat("n", -1)
        self.look()
        self.pulse("c")
        self.join("c", 0, 1, 2)
        self.sync("c", assignment(*ALL))
        self.look()
        self.enter("m", "t", "u")
        self.look()
        self.leave(("c", None), ("m", None), ("none", None))
        self.look()

    def joined(self) -> None:
        """A classic member joins members that heartbeat."""
        self.enter("a", "t")
        self.join("c")
        self.sync("c")
        self.pulse("c")
        self.beat("a")
        self.beat("a", owns=True)
        self.pulse("c")
        self.join("c")
        self.sync("c")
        self.pulse("c")
        self.join("d", topics=("t", "u"), member_id="d")
        self.names.setdefault("d", "d")
        self.look()
        self.leave(("a", None))
        self.look()

    def static(self) -> None:
        """Static members of either protocol take each other's place."""
        one: Any = {"group_instance_id": "one"}
        self.classic("s", assignment(*ALL), **one)
        self.enter("p", "t", instance_id="one")
        self.pulse("s", **one)
        self.look()
        self.beat("p", instance_id="one")
        self.join("q", *ALL, **one)
        self.look()
        self.sync("q", **one)
        self.pulse("q", **one)
        if self.enter("r", "t", instance_id="two").error_code:
            return  # a classic group: another member would wait for q to rejoin
        self.pulse("q", **one)
        self.join("q", **one)
        self.sync("q", **one)
        self.beat("r", instance_id="two")
        self.look()
        self.join("v", topics=("u",), group_instance_id="two")
        self.look()

    def unreadable(self) -> None:
        """Groups that cannot become consumer groups."""
        for group, given, fields in (
            ("own-data", assignment(*ALL, data=OWN), {}),
            ("other-assignment", b"x", {}),
            ("other-type", b"", {"protocol_type": "connect"}),
            ("no-metadata", b"", {"protocols": [{"name": "range", "metadata": b""}]}),
        ):
            self.group = group
            self.told = {}
            self.classic(f"of-{group}", given, **fields)
            self.enter("n", "t")
            self.look()

    def checked(self) -> None:
        """Requests that are refused in a group with members of both protocols."""
        self.enter("a", "t")
        self.join("e", member_id="e", version=6)
        self.names.setdefault("e", "e")
        self.sync("e")
        self.pulse("e", generation_id=77)
        self.pulse("a", generation_id=self.epochs["a"])
        self.pulse("x")
        self.pulse("e", group_instance_id="none")
        self.sync("e", generation_id=77)
        self.sync("e", protocol_name="other")
        self.sync("e", protocol_type="other")
        self.sync("e", protocol_name=None)
        self.join("f", protocols=[{"name": "other", "metadata": subscribed("t")}])
        self.join("f", protocols=[])
        self.join("f", protocol_type="other")
        self.join("f", session_timeout_ms=1)
        self.join("f", member_id="f", protocols=[{"name": "range", "metadata": b"\0\1x"}])
        self.join("f", member_id="f", group_instance_id="three")
        for version in (8, 9):
            self.commit("e", self.told.get("e", 0), 0, version=version)
            self.commit("e", 99, 0, version=version)
        self.look()

    # ---- records ---------------------------------------------------------------------------

    def in_order(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Any]:
        """The records of consumer groups in their order, but for those of one kind in a row, and
        for tombstones of several members: Kafka keeps members in hash tables."""
        found = told_records(records, self.ids, {3, 4, 5, 6, 7, 8, 16}.__contains__)
        named = [self._named(one) for one in found]
        rows: list[Any] = []
        for (kind, _), some in groupby(named, lambda one: (one[2] and one[0], one[1]["group_id"])):
            order = repr if kind else lambda one: one[1].get("member_id", "~")
            rows += sorted(some, key=order)
        return rows

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._named(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._named(one) for one in value]
        return self.names.get(value, value) if isinstance(value, str) else value


def live_groups(
    records: Iterable[tuple[bytes | None, bytes | None]], names: dict[str, str]
) -> dict[str, Any]:
    """The classic groups of a log, without times and hosts."""
    found: dict[str, Any] = {}
    for key, value in records:
        if key is None:
            continue
        name, kind, fields = OFFSETS.decode_key(key)
        if kind != 2:
            continue
        found.pop(fields.group, None)
        if value is not None:
            record = OFFSETS.decode_value(name, value)[1]
            found[fields.group] = _plain(record, names)
    return found


def _plain(record: Any, names: dict[str, str]) -> Any:
    members = [
        {
            name: names.get(value, value) if isinstance(value, str) else value
            for name, value in one if name != "client_host"
        }
        for one in record.members
    ]  # fmt: skip
    kept = {
        name: names.get(value, value) if isinstance(value, str) else value
        for name, value in record if name not in ("members", "current_state_timestamp")
    }  # fmt: skip
    return {**kept, "members": sorted(members, key=repr)}
