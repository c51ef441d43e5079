# SPDX-License-Identifier: Apache-2.0
"""What clients and brokers say of records that are not what was written.

Contract: a batch whose bytes were altered fails its checksum, cannot be decompressed, or has no form that there is.
None of it passes by waiting, and none of it says that brokers are away.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

__all__ = ["DAMAGE"]

DAMAGE = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
    }
)
"""What the client or a broker says of bytes that cannot be what was written: checksum, compression, form."""
