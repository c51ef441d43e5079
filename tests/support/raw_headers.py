# SPDX-License-Identifier: Apache-2.0
"""Records whose header names are any bytes. To brokers they are; the Python client can give no such name, nor show one.

The C library that comes with the client is called as it stands.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER, _END, _COPY = 0, 1, 3, 4, 7, 9, 0, 2
SECONDS = 60


def produce_raw(bootstrap: str, topic: str, partition: int, value: bytes, name: bytes, content: bytes) -> None:
    """One record with a header of that name."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*"))))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    complaint = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), complaint, 512)
    handle = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, complaint, 512))
    assert handle.value, complaint.value
    try:
        refused = library.rd_kafka_producev(
            handle,
            *(_TOPIC, ctypes.c_char_p(topic.encode())),
            *(_PARTITION, ctypes.c_int32(partition)),
            *(_VALUE, ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
            *(_HEADER, ctypes.c_char_p(name), ctypes.c_char_p(content), ctypes.c_ssize_t(len(content))),
            *(_FLAGS, ctypes.c_int(_COPY)),
            _END,
        )
        assert refused == 0
        assert library.rd_kafka_flush(handle, SECONDS * 1000) == 0
    finally:
        library.rd_kafka_destroy(handle)
