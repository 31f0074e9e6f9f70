"""The same requests as the same principals under the same ACLs, to any broker.

`answers` sets up topics, groups, transactions and ACLs, sends every request of `REQUESTS` as each
principal of `PRINCIPALS`, and returns what the answers reveal: names, error codes and authorized
operations, nothing that differs from run to run.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalog.wire import apis
from kafkalog.wire.values import Struct
from tests.support import apache
from tests.support.authorization_requests import (
    COMMIT,
    DELETED,
    OPEN,
    PRINCIPALS,
    REQUESTS,
    TOPICS,
    UNKNOWN_ID,
    USED,
)
from tests.support.raw import Raw
from tests.support.waiting import wait_for

ADMIN, PASSWORD = "admin", "secret"
"""The super user, and the password of all."""
USERS = (ADMIN, *PRINCIPALS)
RECORDED = apache.TESTS / "kafka" / "golden" / "authorization.json"
"""Apache Kafka's answers."""
OTHERS = "all others"

# ---- what an answer reveals ----------------------------------------------------------------

_NAMES = frozenset((
    "feature", "group_id", "key", "name", "principal_name", "resource_name", "resource_type",
    "topic", "topic_name", "transactional_id", "user",
))  # fmt: skip
_COUNTED = ("api_keys", "brokers", "configs", "current_voters", "finalized_features", "members",
            "node_endpoints", "supported_features")  # fmt: skip
"""Lists that are compared by whether they have any entries."""
_DENIALS = frozenset({29, 30, 31, 53, 65})
Found = dict[str, Any]


def revealed(answer: Any, names: Mapping[UUID, str], only_denials: bool = False) -> Found:
    """Names, codes and operations of an answer, its lists sorted."""
    found: Found = {}
    for field, value in answer:
        if field in _COUNTED:
            if value and not only_denials:
                found[field] = "some"
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            rows = [revealed(one, names, only_denials) for one in value]
            if rows := [one for one in rows if one]:
                found[field] = sorted(rows, key=repr)
        elif isinstance(value, Struct):
            if inside := revealed(value, names, only_denials):
                found[field] = inside
        elif field.endswith("error_code"):
            if value and (not only_denials or value in _DENIALS):
                found[field] = int(value)
        elif field.endswith("authorized_operations"):
            if value != -(1 << 31):
                found[field] = value
        elif field in _NAMES and value not in (None, ""):
            found[field] = value
        elif field == "topic_id" and (value in names or value == UNKNOWN_ID):
            found[field] = names.get(value, "unknown")
        elif field == "num_partitions":
            found[field] = value
    return found


# ---- a broker with ACLs --------------------------------------------------------------------


def connect(address: str, user: str) -> Raw:
    """A connection of this user, by SASL/PLAIN."""
    raw = Raw(address, client_id="authorization")
    handshake = raw.call(apis.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert not handshake.error_code, handshake
    secret = f"\0{user}\0{PASSWORD}".encode()
    found = raw.call(apis.SASL_AUTHENTICATE, 2, auth_bytes=secret)
    assert not found.error_code, found
    return raw


def settings() -> dict[str, str]:
    """Settings that Apache Kafka's broker and ours understand, but for their listeners."""
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "k3y",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Apache Kafka with these settings; the address of its SASL listener."""
    port, open_port = apache.free_port(), apache.free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{open_port},SASL_PLAINTEXT://127.0.0.1:{port}"
    given = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{(controller := apache.free_port())}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(
            ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT")
        ),
        **settings(),
    }
    text = "".join(f"{name}={value}\n" for name, value in given.items())
    with apache.Broker(directory, text, port=open_port):
        yield f"127.0.0.1:{port}"


class _Cluster:
    """The super user's connection."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}

    def prepare(self) -> None:
        """Topics, offsets of groups, transactions, tokens, ACLs."""
        self.create((*TOPICS, *DELETED))
        for kind, keys in ((0, TOPICS), (1, (*TOPICS, OPEN))):
            _until(
                lambda kind=kind, keys=keys: (
                    not any(
                        one.error_code
                        for one in self.raw.call(
                            apis.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=list(keys)
                        ).coordinators
                    )
                )
            )
        for group in TOPICS:
            topics = [{"name": name, **COMMIT} for name in TOPICS]
            body = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": topics,
            }
            _until(lambda body=body: _is_committed(self.raw.call(apis.OFFSET_COMMIT, 9, **body)))
        for name in (*TOPICS, OPEN):
            _until(lambda name=name: self._producer(name).error_code == 0)
        producer = self._producer(OPEN)
        added = self.raw.call(
            apis.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=OPEN,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in TOPICS],
        )
        assert not any(
            part.partition_error_code
            for topic in added.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        )
        for name in TOPICS:
            made = self.raw.call(
                apis.CREATE_DELEGATION_TOKEN, 3, owner_principal_type="User",
                owner_principal_name=name, renewers=[], max_lifetime_ms=-1,
            )  # fmt: skip
            assert not made.error_code, made
        self._set_acls()

    def _producer(self, name: str) -> Any:
        # Longer than any run: the transaction stays open.
        return self.raw.call(
            apis.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=900_000
        )

    def _set_acls(self) -> None:
        creations = [
            {
                "resource_type": acl.kind,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern,
                "principal": f"User:{user}",
                "host": "*",
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for user, acls in PRINCIPALS.items()
            for acl in acls
        ]
        found = self.raw.call(apis.CREATE_ACLS, 3, creations=creations)
        assert not any(one.error_code for one in found.results), found
        count = len({tuple(one.values()) for one in creations})
        _until(lambda: self._acl_count() >= count)  # Kafka's authorizer follows its metadata

    def _acl_count(self) -> int:
        found = self.raw.call(
            apis.DESCRIBE_ACLS, 3, resource_type_filter=1, resource_name_filter=None,
            pattern_type_filter=1, principal_filter=None, host_filter=None, operation=1,
            permission_type=1,
        )  # fmt: skip
        return sum(len(one.acls) for one in found.resources)

    def create(self, names: Iterable[str]) -> None:
        """Create these topics, and learn their ids."""
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        found = self.raw.call(apis.CREATE_TOPICS, 7, topics=topics, timeout_ms=30_000)
        assert not any(one.error_code for one in found.topics), found
        self.ids.update((one.name, one.topic_id) for one in found.topics)
        self.names = {id_: name for name, id_ in self.ids.items()}
        _until(lambda: not set(names) - self._there(names))

    def delete(self, names: Iterable[str]) -> None:
        """Delete these topics, once they are there."""
        _until(lambda: not set(names) - self._there(names))
        self.raw.call(apis.DELETE_TOPICS, 5, topic_names=list(names), timeout_ms=30_000)
        _until(lambda: not self._there(names))

    def _there(self, names: Iterable[str]) -> set[str]:
        topics = [{"name": name} for name in names]
        found = self.raw.call(apis.METADATA, 12, topics=topics, allow_auto_topic_creation=False)
        return {
            one.name
            for one in found.topics
            if not one.error_code and all(not part.error_code for part in one.partitions)
        }


def _until(condition: Callable[[], bool]) -> None:
    wait_for(condition, "the broker is ready")


def _is_committed(answer: Any) -> bool:
    return not any(one.error_code for topic in answer.topics for one in topic.partitions)


def _after(cluster: _Cluster, name: str, answer: Any) -> None:
    """Undo what a request did."""
    if name == "Metadata that creates":
        denied = {one.name for one in answer.topics if one.error_code == 29}
        if used := [one for one in USED if one not in denied]:
            cluster.delete(used)
    elif name == "DeleteTopics by id":
        gone = [
            cluster.names[one.topic_id]
            for one in answer.responses
            if not one.error_code and one.topic_id in cluster.names
        ]
        if gone:
            cluster.create(gone)


def answers(
    address: str,
    served: Mapping[int, range] | None = None,
    users: Iterable[str] = PRINCIPALS,
    names: Iterable[str] = REQUESTS,
) -> dict[str, dict[str, Found | str]]:
    """By request and principal, what the broker at `address` reveals.

    `served`: leave out other APIs.
    """
    found: dict[str, dict[str, Found | str]] = {}
    with connect(address, ADMIN) as admin:
        cluster = _Cluster(admin)
        cluster.prepare()
        connections = {user: connect(address, user) for user in users}
        for name in names:
            request = REQUESTS[name]
            if served is not None and request.version not in served.get(request.api.key, ()):
                continue
            rows = found[name] = {}
            for user in connections:
                try:
                    body = request.body(cluster.ids)
                    answer = connections[user].call(request.api, request.version, **body)
                except ConnectionError:
                    rows[user] = "closed"
                    connections[user].close()
                    connections[user] = connect(address, user)
                    continue
                rows[user] = revealed(answer, cluster.names, request.only_denials)
                _after(cluster, name, answer)
        for connection in connections.values():
            connection.close()
    return found


def grouped(found: Mapping[str, Mapping[str, Found | str]]) -> dict[str, list[Any]]:
    """For each request its different answers, each with the principals that got it; the last one
    is that of all others."""
    table: dict[str, list[Any]] = {}
    for name, rows in found.items():
        different: dict[str, tuple[list[str], Any]] = {}
        for user, answer in rows.items():
            different.setdefault(repr(answer), ([], answer))[0].append(user)
        *few, (_, most) = sorted(different.values(), key=lambda one: (len(one[0]), one[0]))
        table[name] = [*([" ".join(who), answer] for who, answer in few), [OTHERS, most]]
    return table


def recorded() -> dict[str, dict[str, Found | str]]:
    """Apache Kafka's answers, as `answers` returns it."""
    table = json.loads(RECORDED.read_text())
    found: dict[str, dict[str, Found | str]] = {}
    for name, rows in table.items():
        found[name] = dict.fromkeys(PRINCIPALS, rows[-1][1])
        for who, answer in rows[:-1]:
            found[name].update(dict.fromkeys(who.split(), answer))
    return found


def differences(
    ours: Mapping[str, Mapping[str, Found | str]], kafkas: Mapping[str, Mapping[str, Found | str]]
) -> list[str]:
    """Where two brokers' answers differ, to the requests that both were sent."""
    return [
        f"{name} as {user}:\n  ours  {answer}\n  Kafka {kafkas[name][user]}"
        for name, rows in ours.items()
        for user, answer in rows.items()
        if answer != kafkas[name][user]
    ]


def main() -> None:
    """Record what Apache Kafka answers: `python -m tests.support.authorization`."""
    with tempfile.TemporaryDirectory() as directory, kafka(Path(directory) / "data") as address:
        table = grouped(answers(address))
    lines = []
    for name, rows in table.items():
        inside = ",\n".join("  " + json.dumps(row, sort_keys=True) for row in rows)
        lines.append(f"{json.dumps(name)}: [\n{inside}\n]")
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
