"""At most once: the offsets are committed before the records are processed.

Killed at any moment, it loses some and copies none twice.
"""

import sys

from kafkalog import Consumer, Producer


def main(servers: str, source: str, target: str) -> None:
    """Copy every record of one topic to another, forever."""
    options = {"group": target, "group_instance_id": "copy-1", "auto_commit": False}
    with (
        Consumer(servers, source, auto_offset_reset="earliest", **options) as consumer,
        Producer(servers) as producer,
    ):
        while True:
            records = consumer.poll()
            if records:
                consumer.commit()  # from here on they are done, whatever happens
            for record in records:
                producer.send(target, record.value, record.key)
            producer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
