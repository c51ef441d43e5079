# SPDX-License-Identifier: Apache-2.0
"""Fill the topic `orders`: 20,000 records in four partitions. Five are broken, twenty are tombstones."""

import json

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}
FIRST = 1767355200000  # 2026-01-02 12:00 UTC

# Without idempotence a batch that is sent again may come twice, or behind later ones.
admin, producer = AdminClient(KAFKA), Producer(KAFKA | {"enable.idempotence": True})
admin.create_topics([NewTopic("orders", 4)])["orders"].result()
for n in range(20_000):
    order = {
        "id": "no number" if n % 4_000 == 7 else n,
        "ts": FIRST + n * 10_000,
        "amount": f"{n % 500}.50",
        "customer": {"name": f"customer {n % 97}", "country": "NL"},
        "tags": ["new"],
    }
    producer.produce("orders", None if n % 1_000 == 3 else json.dumps(order), key=str(n))
    producer.poll(0)
producer.flush()
