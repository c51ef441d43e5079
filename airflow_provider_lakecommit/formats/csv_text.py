# SPDX-License-Identifier: Apache-2.0
"""The grammar of CSV values: one row of so many fields, or several rows.

RFC 4180 with a declared delimiter and quote: a field is without quotes and line ends, or quoted as a whole. Other forms
are refused, never repaired: a text cut within quotes would otherwise swallow the next record. So rows found here can be
joined, a line each, and are exactly the parser's rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.decoder import Refusal

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
        odd = _has(array, b"\n", b"\r", *([self.quote.encode()] if self.quote else []))
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
            rows.append(self._counted(row[0], self._count(row[0])))
            if (at := row.end()) == len(text):
                break
            at += 2 if text[at] == ord("\r") else 1
            if not self._many:
                raise Refusal("not_csv", None, "the value has more than one row: set `csv.rows: many` if all are rows")
        if row is None:
            raise Refusal("not_csv", None, _BROKEN)
        return rows

    def _count(self, row: bytes) -> int:
        return (row if self._quoted is None else self._quoted.sub(b"", row)).count(self._by) + 1

    def _counted(self, row: bytes, count: int) -> bytes:
        if count != self._fields:
            delimiter = ": check `csv.delimiter`" if count == 1 else ""
            raise Refusal("not_csv", None, f"a row has {count} fields, `csv.columns` names {self._fields}{delimiter}")
        return row


def _has(array: pa.Array, *what: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = np.zeros(len(array), bool)
    for each in what:
        found |= pc.match_substring(array, each).to_numpy(zero_copy_only=False)
    return found
