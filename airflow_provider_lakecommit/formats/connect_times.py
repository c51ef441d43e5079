# SPDX-License-Identifier: Apache-2.0
"""The meaning of whole numbers as times in schemas of Kafka Connect and Debezium, with the ``timestamps`` rule for
each.
"""

from __future__ import annotations

from collections.abc import Mapping

RULE_OF: Mapping[str, str] = {
    "io.debezium.time.Timestamp": "epoch_millis",
    "io.debezium.time.MicroTimestamp": "epoch_micros",
    "io.debezium.time.NanoTimestamp": "epoch_nanos",
    "org.apache.kafka.connect.data.Timestamp": "epoch_millis",
    "io.debezium.time.Date": "epoch_days",
    "org.apache.kafka.connect.data.Date": "epoch_days",
    "io.debezium.time.Time": "millis_of_day",
    "io.debezium.time.MicroTime": "micros_of_day",
    "io.debezium.time.NanoTime": "nanos_of_day",
    "org.apache.kafka.connect.data.Time": "millis_of_day",
}


def unread(meaning: str, stated: str | None) -> str | None:
    """Return why numbers are not times of a column, ``None`` if they are.

    :param meaning: their name in the schema, if any
    :param stated: the rule of the column, if any
    """
    rule = RULE_OF.get(meaning)
    if stated is None or (not stated.startswith("epoch_") and not stated.endswith("_of_day")):
        known = f" ({meaning} is {rule})" if rule else ""
        return f"without a logical type; state in `timestamps` how times are written{known}"
    if rule not in (None, stated):
        return f"of {meaning}, which {rule} reads; `timestamps` has {stated}"
    return None
