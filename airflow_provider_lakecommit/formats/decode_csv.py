# SPDX-License-Identifier: Apache-2.0
"""CSV values to rows of the table: every value is one row, the rows that it holds, or one reject.

The landing names the fields (``csv.columns``); records have no header row. With ``rows: many`` a value is as many rows
as it holds, and all of them are refused if one is. Fields are read as
:mod:`~airflow_provider_lakecommit.formats.text_columns` reads texts. Unquoted ``csv.null_text`` (by default empty) is
null. Columns that are not named are null; named fields that the table lacks are unknown fields. Errors of form and of
single fields are found for each value; the rest by halving.

The grammar is RFC 4180 with a declared delimiter and quote: a field is without quotes and line ends, or quoted as a
whole. Other forms are refused, never repaired: a text cut within quotes would otherwise swallow the next record. So
rows found here can be joined, a line each, and are exactly the parser's rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Refusal, Reject, halved
from airflow_provider_lakecommit.formats.text_columns import bad_texts, filled, text_columns, wrong_texts
from airflow_provider_lakecommit.iceberg import arrow_field


class CsvDecoder(BaseDecoder):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of CSV."""

    def __init__(self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset()) -> None:
        self._names: list[str] = list(options.csv["columns"])
        fields = [f for f in schema.fields if f.name not in skip]
        absent = {f.name for f in fields} - set(self._names)
        if lacking := [f.name for f in fields if f.required and f.name in absent]:
            raise TableError("LC4005", f"required columns {', '.join(lacking)} are not among `csv.columns`")
        if not set(self._names) & {f.name for f in fields}:
            raise TableError(
                "LC4006", f"the table has none of the columns {', '.join(self._names)} that `csv.columns` names"
            )
        self._columns = text_columns(schema, options, skip | absent)
        self._unknown = [n for n in self._names if n not in {c.name for c in self._columns}]
        self._strict = options.unknown_fields == "dead_letter"
        self._form = CsvRows(options.csv, len(self._names))
        self._many = not options.one_row_each
        self._schema = pa.schema([arrow_field(f) for f in fields])
        # Fields are matched by position: their names may be any text.
        self._head = self._form.delimiter.join(str(n) for n in range(len(self._names))).encode()
        self._parse = pcsv.ParseOptions(
            delimiter=self._form.delimiter,
            quote_char=self._form.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=False,
        )
        self._convert = pcsv.ConvertOptions(
            column_types={str(n): pa.string() for n in range(len(self._names))},
            null_values=[options.csv.get("null_text", "")],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return halved(values, self._block)

    def _block(self, values: Sequence[bytes]) -> Decoded:
        rows, positions, bad = self._form.rows_of(values)
        for row in bad_texts(rows):
            bad.setdefault(positions[row], Refusal("not_csv", None, "the value is not valid UTF-8"))
        if bad:
            kept = [n for n, position in enumerate(positions) if position not in bad]
            rows, positions = [rows[n] for n in kept], [positions[n] for n in kept]
        texts = self._texts(rows)
        wrong = self._wrong(texts, positions)
        if wrong:
            bad |= wrong
            kept = [n for n, position in enumerate(positions) if position not in bad]
            texts, positions = texts.take(pa.array(kept, pa.int64())), [positions[n] for n in kept]
        read = {c.name: filled(c, self._field(texts, c.name)) for c in self._columns}
        arrays = [read[f.name] if f.name in read else pa.nulls(len(positions), f.type) for f in self._schema]
        done = {*positions, *bad}
        return Decoded(
            table=pa.Table.from_arrays(arrays, schema=self._schema),
            records=positions if self._many or bad else None,
            rejects=tuple(Reject.of(i, bad[i]) for i in sorted(bad)),
            filtered=[i for i in range(len(values)) if i not in done] if self._many else (),
            ignored=+Counter({n: len(positions) - self._field(texts, n).null_count for n in self._unknown}),
        )

    def _texts(self, rows: Sequence[bytes]) -> pa.Table:
        if not rows:
            return pa.table({str(n): pa.array([], pa.string()) for n in range(len(self._names))})
        text = b"\n".join([self._head, *rows, b""])
        how = pcsv.ReadOptions(use_threads=False, block_size=len(text))
        try:
            table = pcsv.read_csv(pa.BufferReader(text), how, self._parse, self._convert)
        except pa.ArrowInvalid as e:
            raise Refusal("not_csv", None, f"the value is not CSV: {e}") from e
        if table.num_rows != len(rows):
            raise Refusal("not_csv", None, "the value is not one row")
        return table.combine_chunks()

    def _field(self, texts: pa.Table, name: str) -> pa.Array:
        return texts.column(self._names.index(name)).combine_chunks()

    def _wrong(self, texts: pa.Table, positions: Sequence[int]) -> dict[int, Refusal]:
        """Return the values refused for their fields, each with the first reason."""
        found: dict[int, Refusal] = {}

        def add(of_rows: pa.Array, refusal: Refusal) -> None:
            for row in pc.indices_nonzero(of_rows).to_pylist():
                found.setdefault(positions[row], refusal)

        for column in self._columns:
            field, path = self._field(texts, column.name), column.path
            if column.required and field.null_count:
                add(field.is_null(), Refusal("missing_required", path, f"required column {path} is missing or null"))
            if (wrong := wrong_texts(column, field)) is not None:
                add(wrong[0], Refusal("wrong_value", path, wrong[1]))
        for name in self._unknown if self._strict else ():
            add(
                self._field(texts, name).is_valid(), Refusal("unknown_field", name, f"the table lacks the field {name}")
            )
        return found


_BROKEN = "a quoted field has no end or is followed by text, or an unquoted field has a quote or a carriage return"
_LINE_END = re.compile(rb"\r?\n\Z")


class CsvRows:
    """The CSV form of a landing's values, with so many fields per row."""

    def __init__(self, options: Mapping[str, Any], fields: int) -> None:
        self.delimiter: str = options.get("delimiter", ",")
        self.quote: str | None = options.get("quote", '"')
        self._fields = fields
        self._many = options.get("rows") == "many"
        self._by = self.delimiter.encode()
        self._quoted: re.Pattern[bytes] | None = None
        by, quote = re.escape(self._by), re.escape((self.quote or "").encode())
        field = rb"[^\r\n" + quote + by + rb"]*+"
        if quote:
            quoted = quote + rb"(?:[^" + quote + rb"]|" + quote * 2 + rb")*+" + quote
            self._quoted = re.compile(quoted)
            field = rb"(?:" + quoted + rb"|" + field + rb")"
        self._row = re.compile(field + rb"(?:" + by + field + rb")*+(?=\r?\n|\Z)")

    def rows_of(self, values: Sequence[bytes]) -> tuple[list[bytes], list[int], dict[int, Refusal]]:
        array = pa.array(values, pa.binary())
        odd = np.zeros(len(array), bool)
        for mark in ("\n", "\r", self.quote):
            if mark:
                odd |= pc.match_substring(array, mark.encode()).to_numpy(zero_copy_only=False)
        counts = pc.add(pc.count_substring(array, self._by), 1).to_numpy()
        if self._many:
            odd |= pc.equal(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        elif not odd.any() and (counts == self._fields).all():
            return list(values), list(range(len(values))), {}
        rows, positions, bad = list[bytes](), list[int](), dict[int, Refusal]()
        for i, value in enumerate(values):
            try:
                found = self._split(value) if odd[i] else [self._counted(value, int(counts[i]))]
            except Refusal as refusal:
                bad[i] = refusal
                continue
            rows += found
            positions += [i] * len(found)
        return rows, positions, bad

    def _split(self, value: bytes) -> list[bytes]:
        if self._many and not value:
            return []
        text, rows, at = _LINE_END.sub(b"", value, count=1), list[bytes](), 0
        while (row := self._row.match(text, at)) is not None:
            plain = row[0] if self._quoted is None else self._quoted.sub(b"", row[0])
            rows.append(self._counted(row[0], plain.count(self._by) + 1))
            if (at := row.end()) == len(text):
                break
            at += 2 if text[at] == ord("\r") else 1
            if not self._many:
                raise Refusal("not_csv", None, "the value has more than one row: set `csv.rows: many` if all are rows")
        if row is None:
            raise Refusal("not_csv", None, _BROKEN)
        return rows

    def _counted(self, row: bytes, count: int) -> bytes:
        if count != self._fields:
            delimiter = ": check `csv.delimiter`" if count == 1 else ""
            raise Refusal("not_csv", None, f"a row has {count} fields, `csv.columns` names {self._fields}{delimiter}")
        return row
