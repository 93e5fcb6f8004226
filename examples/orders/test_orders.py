"""No order is lost, and none is counted twice, though a broker dies while they come in.

The fixture `paceline` comes with the package: three brokers in this process.
"""

from __future__ import annotations

import logging

from orders import TOPIC, Orders, ledger

# pytest keeps what is logged, and with an error of kafka-python's the socket that was refused: the
# fixture would find it left open.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


def test_every_order_is_there_once_though_a_broker_dies(paceline):
    paceline.create_topic(TOPIC, partitions=3)
    bootstrap = paceline.addresses("kafka")
    with Orders(bootstrap) as service:
        for number in range(20):
            partition = service.place(f"before-{number}", "ann", 5)
        dead = paceline.kill(f"leader of {TOPIC}/{partition}")
        for number in range(20):
            service.place(f"after-{number}", "ann", 5)

    paceline.restart(dead)
    paceline.wait_for_isr(TOPIC, count=3)
    orders, euro = ledger(bootstrap)
    assert len(orders) == 40
    assert set(orders.values()) == {1}
    assert euro == {"ann": 200}
