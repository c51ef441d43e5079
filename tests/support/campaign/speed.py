# SPDX-License-Identifier: Apache-2.0
"""pyiceberg's manifests in less time: what it derives anew from the header of each file is the same for most of them.

Contract: pure derivations are remembered, nothing that is read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.avro import file as avro_file
from pyiceberg.schema import Schema

__all__ = ["fast_manifests"]

_SCHEMA = "avro.schema"


@contextmanager
def fast_manifests() -> Iterator[None]:
    """In this block each schema of an Avro file is converted once, and resolved once for each way to read it."""
    schemas: dict[str, Schema] = {}
    readers: dict[tuple[Any, ...], Any] = {}
    # The schemas that are keys by their identity stay alive with this list.
    kept: list[Any] = []
    convert, resolve = avro_file.AvroFileHeader.get_schema, avro_file.resolve_reader

    def schema_of(header: avro_file.AvroFileHeader) -> Schema:
        text = header.meta[_SCHEMA]
        if text not in schemas:
            schemas[text] = convert(header)
        return schemas[text]

    def reader_of(file_schema: Any, read_schema: Any, types: Any, enums: Any) -> Any:
        key = (
            id(file_schema),
            id(read_schema),
            *sorted((types or {}).items(), key=_first),
            *sorted((enums or {}).items(), key=_first),
        )
        if key not in readers:
            kept.extend((file_schema, read_schema))
            readers[key] = resolve(file_schema, read_schema, types, enums)
        return readers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_file.AvroFileHeader, "get_schema", schema_of)
        patch.setattr(avro_file, "resolve_reader", reader_of)
        yield


def _first(item: tuple[int, Any]) -> int:
    return item[0]
