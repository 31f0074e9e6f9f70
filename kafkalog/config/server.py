"""A broker's settings: those of its data directory, its coordinators and its network side."""

from collections.abc import Mapping

from kafkalog.config.authorizer import AuthorizerConfig
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.client_metrics import ClientMetricsConfig
from kafkalog.config.console import ConsoleSettings
from kafkalog.config.declare import Flag, Long, Password, Secret, Whole, Word, Words
from kafkalog.config.group import GroupConfig
from kafkalog.config.listeners import ListenerSettings, SecurityProtocol, own_setting
from kafkalog.config.login import BearerSettings
from kafkalog.config.logs import LogLineSettings
from kafkalog.config.metrics import MetricsSettings
from kafkalog.config.protection import bare_name
from kafkalog.config.quorum import QuorumConfig
from kafkalog.config.quota import QuotaConfig
from kafkalog.config.replica import ReplicaConfig
from kafkalog.config.sasl import SaslServerSettings
from kafkalog.config.share_records import ShareRecordsConfig
from kafkalog.config.share_state import ShareStateConfig
from kafkalog.config.ssl import KEY_SETTINGS, ServerSslSettings
from kafkalog.config.tokens import TokenSettings
from kafkalog.config.topic import TopicConfig
from kafkalog.config.transaction import TransactionConfig
from kafkalog.config.zookeeper import ZooKeeperSettings

__all__ = ["CORDONED", "DYNAMIC", "ServerConfig", "is_dynamic"]

PLAINTEXT = SecurityProtocol.PLAINTEXT.name
_LISTENER = {"pattern": r"[A-Za-z0-9_.\-]+://.*", "example": "NAME://host:port"}


class ServerConfig(
    ListenerSettings,
    BrokerConfig,
    GroupConfig,
    ShareRecordsConfig,
    TransactionConfig,
    ShareStateConfig,
    ReplicaConfig,
    QuorumConfig,
    ZooKeeperSettings,
    QuotaConfig,
    SaslServerSettings,
    BearerSettings,
    ServerSslSettings,
    AuthorizerConfig,
    TokenSettings,
    MetricsSettings,
    ClientMetricsConfig,
    LogLineSettings,
    ConsoleSettings,
):
    """All settings that a broker takes, under Kafka's names."""

    scope = "broker"

    node_id = Whole(
        1,
        "This broker's id; a directory keeps the one it was created with, which is then the "
        "default. A cluster's new node must be given one.",
        low=0,
    )
    broker_rack = Word("", "The rack that is reported to clients; empty: none.")
    listeners = Words(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to accept connections: NAME://host:port; port 0 picks a free one, no host means "
        "all addresses, NAME://unix:/path is a Unix socket.",
        **_LISTENER,
    )
    advertised_listeners = Words(
        (),
        "The addresses that clients connect to, by listener name; default: the listener's own "
        "address.",
        **_LISTENER,
    )
    listener_security_protocol_map = Words(
        tuple(f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")),
        "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. "
        "A name that is a protocol needs no entry.",
        pattern=r"[A-Za-z0-9_.\-]+:[A-Z0-9_]+",
        example="NAME:PROTOCOL",
    )
    inter_broker_listener_name = Word(
        "",
        "The listener by which brokers of a cluster reach each other; empty: the one named as "
        "security.inter.broker.protocol, or else the first one.",
    )
    security_inter_broker_protocol = Word(
        PLAINTEXT,
        "The name of the listener by which brokers reach each other, if "
        "inter.broker.listener.name is not given.",
        choices=tuple(one.name for one in SecurityProtocol),
    )
    control_plane_listener_name = Word(
        "",
        "The listener between brokers of a cluster and its controller; it has its own network "
        "thread, and its requests are answered first. Empty: the brokers' listener.",
    )
    num_network_threads = Whole(
        3, "Threads that read requests and write responses.", low=1, high=256
    )
    num_io_threads = Whole(
        8, "Threads that answer requests that the network threads pass on.", low=1
    )
    queued_max_requests = Whole(
        500, "Requests that may wait for an I/O thread before reading stops.", low=1
    )
    queued_max_request_bytes = Long(
        268_435_456,
        "Bytes of requests above 4 KiB that may be received and not yet answered before "
        "reading such requests stops; -1: no limit.",
        unit="bytes",
        low=-1,
        kafka=-1,
    )
    socket_request_max_bytes = Whole(
        104_857_600, "Largest request; a larger one closes its connection.", unit="bytes", low=1
    )
    socket_send_buffer_bytes = Whole(
        -1,
        "SO_SNDBUF of connections; -1: the system's, which adapts it.",
        unit="bytes",
        low=-1,
        kafka=102_400,
    )
    socket_receive_buffer_bytes = Whole(
        -1,
        "SO_RCVBUF of connections; -1: the system's, which adapts it.",
        unit="bytes",
        low=-1,
        kafka=102_400,
    )
    socket_listen_backlog_size = Whole(
        1024,
        "Connections that may wait to be accepted; the system may allow less.",
        low=1,
        kafka=50,
    )
    max_connections = Whole(2_147_483_647, "Connections at the same time.", low=0)
    max_connections_per_ip = Whole(
        2_147_483_647, "Connections from one address at the same time.", low=0
    )
    connections_max_idle_ms = Long(
        600_000, "Time after which a silent connection is closed.", unit="ms", low=-1
    )
    kafkalog_half_frame_max_ms = Long(
        60_000, "Time that a request may take to arrive completely.", unit="ms", low=1
    )
    kafkalog_produce_waiting_max = Whole(
        64, "Produce requests of one connection that may wait for the disk.", low=1
    )
    fetch_max_bytes = Whole(57_671_680, "Most bytes of one Fetch response.", unit="bytes", low=1024)
    max_incremental_fetch_session_cache_slots = Whole(1000, "Fetch sessions kept.", low=0)
    max_request_partition_size_limit = Whole(
        2000, "Partitions in one answer to DescribeTopicPartitions.", low=1
    )
    cordoned_log_dirs = Words(
        (),
        "The data directory, or *: no new topic or partition is placed there; empty: allowed.",
        pattern=r".+",
        example="directories or *",
    )
    num_partitions = Whole(1, "Partitions of a topic that is created without a count.", low=1)
    default_replication_factor = Whole(
        1, "Replicas of a topic that is created without a count.", low=1
    )
    auto_create_topics_enable = Flag(True, "Whether a topic is created when it is first used.")
    delete_topic_enable = Flag(True, "Whether topics may be deleted.")
    offsets_topic_num_partitions = Whole(50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes = Whole(
        104_857_600, "segment.bytes of __consumer_offsets.", unit="bytes", low=1
    )
    offsets_topic_replication_factor = Whole(
        3,
        "Replicas of __consumer_offsets, which a cluster creates once so many nodes are up; a "
        "single node keeps one.",
        low=1,
    )

    @classmethod
    def without_texts_of_secrets(cls, given: Mapping[str, object]) -> dict[str, object]:
        """The same settings, whose repr hides secrets."""
        return {
            name: Password(value) if isinstance(value, str) and isinstance(
                cls.table.get(bare_name(name)), Secret) else value
            for name, value in given.items()
        }  # fmt: skip

    @property
    def clustered(self) -> bool:
        """True for a node of a cluster, on ZooKeeper or of KRaft."""
        return bool(self.zookeeper_connect) or self.joins_quorum

    @property
    def inner_listener(self) -> str:
        """The name of the listener by which brokers reach each other."""
        given = (text.partition("://")[0].upper() for text in self.listeners)
        names = [name for name in given if name not in self.controllers_listeners]
        usual = self.security_inter_broker_protocol
        usual = usual if usual in names else next(iter(names), "")
        return self.inter_broker_listener_name.upper() or usual

    @property
    def control_listener(self) -> str:
        """The name of the listener between brokers and the controller, or the quorum's
        controllers."""
        if self.joins_quorum:
            return next(iter(self.controller_listener_names), "").upper()
        return self.control_plane_listener_name.upper() or self.inner_listener

    def protocol_of(self, listener: str) -> str:
        """The name of a listener's security protocol, by the map; one that is not in it has the
        protocol of its own name, if there is such a one.

        Without a map, and without a listener named as a protocol that protects, the controllers'
        listeners have PLAINTEXT, as in Kafka.
        """
        pairs = (pair.partition(":") for pair in self.listener_security_protocol_map)
        found = {name.upper(): protocol for name, _, protocol in pairs}
        name = listener.upper()
        of_controllers = {one.upper() for one in self.controller_listener_names}
        if name in of_controllers and not self.explicit("listener.security.protocol.map"):
            named = {text.partition("://")[0].upper() for text in self.listeners} | of_controllers
            if not named & (SecurityProtocol.__members__.keys() - {PLAINTEXT}):
                return PLAINTEXT
        return found.get(name, name)

    def listener_limits(self, listener: str) -> tuple[int, int]:
        """The most connections of a listener at the same time, and new ones a second."""
        own = self.of_listener(listener)
        return own.max_connections, own.max_connection_creation_rate

    @classmethod
    def topic_defaults(cls) -> TopicConfig:
        return TopicConfig.served()


CORDONED = "cordoned.log.dirs"
DYNAMIC = frozenset(s.synonym for s in TopicConfig.table.values() if s.synonym) | {
    CORDONED, "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix", "follower.replication.throttled.rate",
    "kafkalog.slow.request.ms",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second",
    "max.connection.creation.rate", "max.connections", "max.connections.per.ip",
    "max.connections.per.ip.overrides", "num.io.threads", "num.network.threads",
    "num.recovery.threads.per.data.dir", "producer.id.expiration.ms",
}  # fmt: skip
"""Broker settings that take effect at run time: defaults of topics, and the settings of
kafkalog.server.dynamic.  Other known settings are read-only; unknown names are stored
unchanged, as in Kafka."""


_OF_LISTENERS = ("max.connections", "max.connection.creation.rate")


def is_dynamic(name: str) -> bool:
    """True if a broker's setting, of all listeners or of one, takes effect at run time."""
    own = own_setting(name)
    if own is None:
        return name in DYNAMIC
    if own.mechanism:
        return False
    return own.name in KEY_SETTINGS or own.name in _OF_LISTENERS
