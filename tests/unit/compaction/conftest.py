"""Workers to be killed, as the crash tests have them, and Kafka's jars."""

from tests.damage.crash.conftest import memory_path, zygote
from tests.kafka.referee.conftest import kafka_jars

__all__ = ["kafka_jars", "memory_path", "zygote"]
