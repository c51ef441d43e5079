# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages to rows of the table, a block at a time, as Protobuf's own parser reads them.

Values name their schema and message (a registry's framing), or all are the landing's stated message. `ptars` parses
each message's values by columns. If it refuses a block, or some rows may be read differently by Protobuf's own parser
(:meth:`~airflow_provider_lakecommit.formats.protobuf.fields.MessageColumns.ambiguous`), every value is first read and
rewritten by that parser, which rejects bad ones and leaves no ambiguity. So the columnar parser, which may panic,
decides nothing alone. Values of :data:`LONG` bytes always go through Protobuf's own parser first, which bounds nesting.

Unknown fields are counted, or reject the record; fields that even the schema lacks are only found if they reject. A
schema that does not fit the table rejects its records (``wrong_schema``); a stated one is refused before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.column_rules import ColumnRules
from airflow_provider_lakecommit.formats.decoder import (
    BaseDecoder,
    Decoded,
    Refusal,
    Reject,
    halved,
    together,
    with_positions,
)
from airflow_provider_lakecommit.formats.framed_values import FramedReader
from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError
from airflow_provider_lakecommit.formats.protobuf.descriptors import (
    file_of,
    message_at,
    message_named,
    read_alike,
    registered_file,
)
from airflow_provider_lakecommit.formats.protobuf.fields import MessageColumns, required_missing
from airflow_provider_lakecommit.formats.protobuf.message_framing import paths_of
from airflow_provider_lakecommit.formats.registry.schema_source import PROTOBUF, SchemaSource, key_text
from airflow_provider_lakecommit.iceberg import arrow_field

LONG = 16_384
"""Bytes from which on a value may be nested deeper than a parser's stack."""
Path = tuple[int, ...]


class ProtobufDecoder(BaseDecoder):
    """Decoder of Protobuf, framed or with one stated message."""

    def __init__(
        self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset(), registry: SchemaSource | None = None
    ) -> None:
        if find_spec("ptars") is None:
            raise TableError(
                "LC4018", "format protobuf needs ptars: install airflow-provider-lakecommit[protobuf], on executors too"
            )
        self._reader = FramedReader(registry, PROTOBUF, registered_file)
        self._columns = [f for f in schema.fields if f.name not in skip]
        self._rules = ColumnRules.of(schema, options)
        if self._rules.wrong:
            raise TableError("LC4019", "; ".join(self._rules.wrong))
        self._strict = options.unknown_fields == "dead_letter"
        self._message = options.message
        self._schema = pa.schema([arrow_field(f) for f in self._columns])
        self._parsers: dict[tuple[object, Path], _Parser | Refusal] = {}
        self._stated: _Parser | None = None
        if options.schema:
            try:
                self._stated = self._parser_of(message_named(file_of(options.schema), options.message))
            except (DescriptorError, Refusal) as e:
                raise TableError("LC4020", f"`schema` cannot be read into the table: {e}") from None

    def decode(self, values: Sequence[bytes]) -> Decoded:
        if self._stated is not None:
            return self._stated.decode(values)
        parts, rejects = self._reader.parts(values)
        pieces: list[tuple[Sequence[int], Decoded]] = []
        for group, file in parts:
            of_part = values if len(group.positions) == len(values) else [values[i] for i in group.positions]
            found, wrong = paths_of(of_part, group.start)
            rejects += [Reject.of(group.positions[i], Refusal("not_framed", None, why)) for i, why in wrong.items()]
            for (path, start), positions in found.items():
                one = len(positions) == len(of_part)
                at = group.positions if one else [group.positions[i] for i in positions]
                parser = self._parser(group.key, file, path)
                if isinstance(parser, Refusal):
                    rejects += [Reject.of(i, parser) for i in at]
                else:
                    own = of_part if one else [of_part[i] for i in positions]
                    pieces.append((at, parser.decode([value[start:] for value in own])))
        empty = Decoded(table=pa.Table.from_batches([], schema=self._schema))
        return together(pieces or [(range(0), empty)], rejects, len(values))

    def _parser(self, key: Any, file: FileDescriptor, path: Path) -> _Parser | Refusal:
        if (key, path) not in self._parsers:
            try:
                message = message_at(file, path, self._message)
                if self._message and message.full_name != self._message:
                    raise Refusal(
                        "wrong_schema",
                        None,
                        f"{key_text(key)}: the record is a {message.full_name}; the landing reads {self._message}",
                    )
                self._parsers[key, path] = self._parser_of(message, f"{key_text(key)}, ")
            except DescriptorError as e:
                self._parsers[key, path] = Refusal("wrong_schema", None, f"{key_text(key)}: {e}")
            except Refusal as refusal:
                self._parsers[key, path] = refusal
        return self._parsers[key, path]

    def _parser_of(self, message: Descriptor, of: str = "") -> _Parser:
        whose = f"{of}message {message.full_name}"
        columns, file, wrong = MessageColumns.of(message, self._columns, self._rules)
        if all(value.wire is None for value in columns.values) and not wrong:
            wrong = ["it has none of the table's columns"]
        if wrong:
            raise Refusal("wrong_schema", None, f"{whose}: {'; '.join(wrong)}")
        return _Parser(message, columns, file.handler(columns.wire), self._schema, strict=self._strict, whose=whose)


class _Parser:
    def __init__(
        self, message: Descriptor, columns: MessageColumns, handler: Any, target: pa.Schema, *, strict: bool, whose: str
    ) -> None:
        self._columns, self._handler, self._target = columns, handler, target
        self._kind: Any = GetMessageClass(read_alike(message, strict=strict))
        self._strict, self._whose = strict, whose
        self._own_first = strict or columns.undecided

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return halved(values, self._block)

    def _block(self, values: Sequence[bytes]) -> Decoded:
        rows = None if self._own_first or max(map(len, values), default=0) >= LONG else self._parsed(values)
        if rows is not None and not self._columns.ambiguous(rows):
            return self._decoded(rows)
        written, bad = self._rewritten(values)
        positions = [i for i in range(len(values)) if i not in bad]
        rows = self._parsed(written)
        if rows is None:
            raise Refusal("not_protobuf", None, f"{self._whose}: the value cannot be read by columns")
        if self._columns.ambiguous(rows):
            # Protobuf's own parser keeps such an entry aside, as it stands, and writes it again.
            raise Refusal("not_protobuf", None, f"{self._whose}: a map has an entry with more than a key and a value")
        rejects = [Reject.of(i, why) for i, why in bad.items()]
        return with_positions(self._decoded(rows), positions, rejects) if bad else self._decoded(rows)

    def _parsed(self, values: Sequence[bytes]) -> pa.StructArray | None:
        """Return the rows of the columnar parser; ``None`` if it refuses some."""
        try:
            batch = self._handler.list_to_record_batch(list(values))
        except ValueError:
            return None
        except BaseException as e:
            # A Rust panic is no Python Exception.
            if type(e).__name__ != "PanicException":
                raise
            return None
        return batch.to_struct_array() if len(batch.columns) else None

    def _rewritten(self, values: Sequence[bytes]) -> tuple[list[bytes], dict[int, Refusal]]:
        """Return the values as Protobuf's own parser rewrites them, and those that it refuses."""
        written, bad = list[bytes](), dict[int, Refusal]()
        for i, value in enumerate(values):
            try:
                message = self._kind.FromString(value)
            except DecodeError as e:
                bad[i] = Refusal("not_protobuf", None, f"{self._whose}: {e}")
                continue
            if self._strict and (numbers := _unknown_numbers(message)):
                bad[i] = Refusal(
                    "unknown_field", None, f"{self._whose} lacks {numbers}, or it is a group or an extension"
                )
                continue
            # What proto2 requires may be missing: whether a column may be null is the table's to say.
            written.append(message.SerializePartialToString(deterministic=True))
        return written, bad

    def _decoded(self, rows: pa.StructArray) -> Decoded:
        unknown = list(self._columns.unknown(rows))
        bad = dict[int, Refusal]()
        for found in unknown if self._strict else ():
            refusal = Refusal("unknown_field", found.path, f"the table lacks the field {found.path}")
            if not found.of_records:
                raise refusal
            for row in np.flatnonzero(found.has).tolist():
                bad.setdefault(row, refusal)
        arrays = self._columns.arrays(rows)
        bad = required_missing(self._columns, arrays) | bad
        records: list[int] | None = None
        if bad:
            records = [i for i in range(len(rows)) if i not in bad]
            kept = pa.array(records, pa.int64())
            arrays, rows = [a.take(kept) for a in arrays], rows.take(kept)
            unknown = list(self._columns.unknown(rows))
        return Decoded(
            table=pa.Table.from_arrays(arrays, schema=self._target),
            records=records,
            rejects=tuple(Reject.of(i, bad[i]) for i in sorted(bad)),
            ignored=Counter({found.path: int(found.has.sum()) for found in unknown}),
        )


def _unknown_numbers(message: Any) -> str:
    """Return the fields that not even the schema has; nested ones without numbers."""
    size = len(message.SerializePartialToString())
    numbers = sorted({each.field_number for each in UnknownFieldSet(message)})
    message.DiscardUnknownFields()
    if len(message.SerializePartialToString()) == size:
        return ""
    return f"the field {', '.join(map(str, numbers))}" if numbers else "a field of a nested message"
