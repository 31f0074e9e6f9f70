"""Workers to be killed, as the crash tests have them, and Kafka's jars."""

from tests.crash.conftest import memory_path, zygote
from tests.referee.conftest import kafka_jars

__all__ = ["kafka_jars", "memory_path", "zygote"]
