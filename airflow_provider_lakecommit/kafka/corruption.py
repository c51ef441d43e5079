# SPDX-License-Identifier: Apache-2.0
"""Errors of clients and brokers about records that differ from what was written.

Contract: a batch with altered bytes fails its checksum, cannot be decompressed, or has an unknown form. Waiting does
not fix it, and it does not mean that brokers are unreachable. A batch is corrupt as a whole, because the exact place is
unknown; its end is found by trying.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

PROBE_SECONDS = 3.0
PATIENCE_SECONDS = 60.0
"""For which brokers that are slow are waited for."""
AT_ONCE_SECONDS = 0.1
CHECK_SECONDS = 5.0
"""For which brokers that give nothing are asked whether they are there."""
EVENTS = 3
"""After this many reports of the same batch, the client is assumed to return nothing else."""

CORRUPTION = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
    }
)
"""What the client or a broker says of bytes that cannot be what was written: checksum, compression, form."""


def answers_at_once(consumer: Consumer, topic: str, partition: int) -> bool:
    """Return False if brokers are slow or unreachable."""
    began = time.monotonic()
    try:
        consumer.get_watermark_offsets(TopicPartition(topic, partition), CHECK_SECONDS, cached=False)
    except KafkaException:
        return False
    return time.monotonic() - began < AT_ONCE_SECONDS


def first_readable(consumer: Consumer, topic: str, partition: int, start: int, limit: int) -> int:
    """Return the first offset from which something can be read, from ``start`` on; ``limit``, if none is before it.

    :param consumer: is assigned to other offsets, so its reading is over
    """
    return next_readable(partial(_readable, consumer, topic, partition), start, limit)


def next_readable(readable: Callable[[int], int | None], start: int, limit: int) -> int:
    """The first offset from which something can be read, from ``start`` on; ``limit``, if there is none before it.

    :param readable: the first offset that is read from an offset on, or ``None``. Damage is a stretch: from some offset
        on all can be read.
    """
    if (found := readable(start)) is not None:
        return min(found, limit)
    # Where nothing comes each question costs seconds: one for all where it lasts to the end.
    if limit - 1 > start and readable(limit - 1) is None:
        return limit
    below, step = start, 1
    while (at := start + step) < limit and (found := readable(at)) is None:
        below, step = at, step * 2
    beyond = min(at, limit)
    while beyond - below > 1:
        middle = (below + beyond) // 2
        if (found := readable(middle)) is None:
            below = middle
        else:
            beyond = middle
    return beyond


def _readable(consumer: Consumer, topic: str, partition: int, offset: int) -> int | None:
    """Return the first offset that can be read from this one on; ``None``, where nothing comes."""
    events, began = 0, time.monotonic()
    deadline = began + PROBE_SECONDS
    consumer.assign([TopicPartition(topic, partition, offset)])
    while events < EVENTS:
        if time.monotonic() > deadline:
            # Slow brokers do not prove that data is missing.
            if answers_at_once(consumer, topic, partition) or time.monotonic() - began > PATIENCE_SECONDS:
                break
            deadline = time.monotonic() + PROBE_SECONDS
        for message in consumer.consume(1, 0.1):
            if (error := message.error()) is None or error.code() == KafkaError._PARTITION_EOF:
                return int(message.offset() or 0)
            # After a corrupt batch the client requests an offset that it computed from wrong bytes.
            events += EVENTS if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code() in CORRUPTION
        (at,) = consumer.position([TopicPartition(topic, partition)])
        if at.offset > offset:
            return int(at.offset)
    return None
