"""Exactly once: the offsets are committed in the transaction that has the records.

Killed at any moment, it loses none and copies none twice, as a read_committed reader sees it.
"""

import sys

from kafkalog import Consumer, Producer


def main(servers: str, source: str, target: str) -> None:
    """Copy every record of one topic to another, forever."""
    options = {"group": target, "group_instance_id": "copy-1", "auto_commit": False}
    with (
        Consumer(servers, source, auto_offset_reset="earliest", **options) as consumer,
        Producer(servers, transactional_id=f"{target}-copy-1") as producer,
    ):
        producer.init_transactions()  # ends a dead one's transaction, which holds offsets back
        while True:
            records = consumer.poll()
            if not records:
                continue
            with producer.transaction():  # all or nothing
                for record in records:
                    producer.send(target, record.value, record.key)
                offsets = {tp: consumer.position(tp) for tp in consumer.assignment}
                producer.send_offsets(offsets, consumer.group_metadata())


if __name__ == "__main__":
    main(*sys.argv[1:])
