"""A kafka-python consumer in a process of its own: prints what it reads until its input ends.

    kafka_python_reader.py SERVERS TOPIC GROUP

A process, because kafka-python leaves the sockets of brokers that die to the garbage collector.
"""

from __future__ import annotations

import sys
import threading

import kafka
import kafka.errors


def main() -> None:
    servers, topic, group = sys.argv[1:]
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
    )
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        try:
            polled = consumer.poll(timeout_ms=100)
        except kafka.errors.RetriableError as error:
            # It looks for its coordinator, asks another node for metadata when that one is dead,
            # and leaves it to its caller when the other refuses, too.
            print(f"polls again: {error!r}", file=sys.stderr, flush=True)
            continue
        for records in polled.values():
            for record in records:
                print(record.key.decode(), record.value.decode())
        sys.stdout.flush()
    consumer.close()


if __name__ == "__main__":
    main()
