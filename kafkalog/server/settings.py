"""The settings of a broker: those of its data directory, and those of its network side."""

from kafkalog.config import settings as config
from kafkalog.config.declare import Flag, Long, Whole, Word, Words, markdown_table
from kafkalog.config.settings import BrokerConfig, GroupConfig, TopicConfig
from kafkalog.metadata.configs import DYNAMIC

__all__ = ["ServerConfig", "render_markdown"]

_LISTENER = {"pattern": r"[A-Za-z0-9_.\-]+://.*", "example": "NAME://host:port"}


class ServerConfig(BrokerConfig, GroupConfig):
    """All settings that a broker takes, under Kafka's names."""

    scope = "broker"

    node_id = Whole(1, "This broker's number; a directory keeps the one it was made with.", low=0)
    broker_rack = Word("", "The rack that clients are told; empty: none.")
    listeners = Words(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where connections are taken: NAME://host:port; port 0 takes a free one, no host all "
        "addresses, NAME://unix:/path a Unix socket.",
        **_LISTENER,
    )
    advertised_listeners = Words(
        (),
        "What clients are told to connect to, by the listener's name; where it is missing: "
        "the listener's own address.",
        **_LISTENER,
    )
    listener_security_protocol_map = Words(
        ("PLAINTEXT:PLAINTEXT",),
        "The security protocol of each listener name; only PLAINTEXT is there so far.",
        pattern=r"[A-Za-z0-9_.\-]+:[A-Z0-9_]+",
        example="NAME:PLAINTEXT",
    )
    inter_broker_listener_name = Word(
        "", "Kept for Kafka: one node has no other brokers to talk to; empty: the first listener."
    )
    num_network_threads = Whole(3, "Threads that read requests and write responses.", low=1)
    num_io_threads = Whole(
        8, "Threads that answer what the network threads do not answer themselves.", low=1
    )
    queued_max_requests = Whole(
        500, "Requests that may wait for an I/O thread before reading stops.", low=1
    )
    queued_max_request_bytes = Long(
        268_435_456,
        "Bytes of requests above 4 KiB that may be in hand, received and not answered, before "
        "reading of such requests stops; -1: no limit.",
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
        "Connections that may wait to be taken; the system may allow less.",
        low=1,
        kafka=50,
    )
    max_connections = Whole(2_147_483_647, "Connections at once.", low=0)
    max_connections_per_ip = Whole(2_147_483_647, "Connections at once of one address.", low=0)
    connections_max_idle_ms = Long(
        600_000, "Time after which a silent connection is closed.", unit="ms", low=-1
    )
    kafkalog_half_frame_max_ms = Long(
        60_000, "Time that a begun request may take to arrive whole.", unit="ms", low=1
    )
    kafkalog_produce_waiting_max = Whole(
        64, "Produce requests of one connection that may wait for the disk.", low=1
    )
    fetch_max_bytes = Whole(57_671_680, "Most bytes of one Fetch response.", unit="bytes", low=1024)
    max_incremental_fetch_session_cache_slots = Whole(1000, "Fetch sessions kept.", low=0)
    max_request_partition_size_limit = Whole(
        2000, "Partitions in one answer to DescribeTopicPartitions.", low=1
    )
    num_partitions = Whole(1, "Partitions of a topic made without a number.", low=1)
    default_replication_factor = Whole(1, "Replicas of a topic made without a number.", low=1)
    auto_create_topics_enable = Flag(True, "Whether a topic is made when it is first asked for.")
    delete_topic_enable = Flag(True, "Whether topics may be deleted.")
    offsets_topic_num_partitions = Whole(50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes = Whole(
        104_857_600, "segment.bytes of __consumer_offsets.", unit="bytes", low=1
    )
    offsets_topic_replication_factor = Whole(
        3, "Replicas of __consumer_offsets; never more than there are brokers.", low=1
    )


def render_markdown() -> str:
    """docs/settings.md: the settings of topics, of data directories and of brokers."""
    topics = {setting.synonym for setting in TopicConfig.table.values()}
    lines = [
        "",
        "## Server settings",
        "",
        "Taken by `kafkalog.Broker(config={...})` and `kafkalog serve`, which take all of the",
        "above as well.",
        "",
        *markdown_table(ServerConfig, False, without=BrokerConfig),
        "",
        "What protects is not there yet and ends the start: `authorizer.*`, `super.users`,",
        "`sasl.*`, `ssl.*`, `security.inter.broker.protocol`, policies, a principal builder, any",
        "listener that is not PLAINTEXT, and metadata with ACLs, SCRAM credentials, tokens.",
        "Values that keep nobody out (Kafka's defaults, empty ones) are passed over, with a word.",
        "",
        "## Changing them at run time",
        "",
        "AlterConfigs and IncrementalAlterConfigs of a broker, or of all (the empty name), change",
        "the defaults of topics and:",
        "",
        *(f"* `{name}`" for name in sorted(DYNAMIC - topics)),
        "",
        "They are in the metadata, and so hold after a restart. Lower limits of connections close",
        "none that is there. The other settings above are answered with INVALID_REQUEST, as those",
        "are that Kafka cannot change either; `num.network.threads`, `listeners` and",
        "`advertised.listeners` are among them here, and not in Kafka. A name that is not above",
        "(`background.threads`, `log.cleaner.threads`, `num.replica.fetchers`, or one that Kafka",
        "does not know) is kept in the metadata and has no effect, as Kafka keeps what it does not",
        "know.",
        "",
    ]
    return config.render_markdown() + "\n".join(lines)
