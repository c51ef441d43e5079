# SPDX-License-Identifier: Apache-2.0
"""Files that Protobuf schemas import and that registries do not serve, for their clients have them.

Contract: pure, but for what it imports. Confluent's clients register no schema for what stands below ``confluent/``
(metadata of fields, decimals); `confluent-kafka` holds the descriptors of these files, which are taken from it. A file
that it does not have is left out: a registry may serve it after all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

CONFLUENT = "confluent/"
"""Prefix of these files' names."""
_PACKAGE = "confluent_kafka.schema_registry.confluent"
_FILES = ("meta_pb2", "type.decimal_pb2", "type.variant_pb2", "types.decimal_pb2")


@cache
def confluent_files() -> tuple[bytes, ...]:
    """Each as a serialized ``FileDescriptorProto``, those first that others import."""
    return tuple(_found())


def _found() -> Iterator[bytes]:
    for name in _FILES:
        module = f"{_PACKAGE}.{name}"
        try:
            there = find_spec(module)
        except ModuleNotFoundError:
            continue
        if there is not None:
            yield import_module(module).DESCRIPTOR.serialized_pb
