# SPDX-License-Identifier: Apache-2.0
"""Unchanged values, and values that are one text: each fills one column.

``raw`` puts bytes into a ``binary`` column, into a ``fixed[n]`` if they are exactly n, or into a ``string`` if they are
UTF-8. :class:`TextDecoder`, for keys and headers, reads one text as any type
(:mod:`~airflow_provider_lakecommit.formats.text_columns`). What does not fit is rejected, never cut, replaced or
trimmed; an empty value is not null.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, StringType

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Refusal, Reject, halved, with_positions
from airflow_provider_lakecommit.formats.text_columns import bad_texts, filled, text_columns, wrong_texts
from airflow_provider_lakecommit.iceberg import arrow_field


class RawDecoder(BaseDecoder):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of unchanged values.

    :raises TableError: not exactly one column is left, or it holds neither bytes nor text
    """

    def __init__(self, schema: Schema, _options: FormatOptions, skip: Set[str] = frozenset()) -> None:
        fields = [f for f in schema.fields if f.name not in skip]
        if len(fields) != 1:
            raise TableError(
                "LC4007",
                "format raw fills one column with the value of a record, but the table has "
                f"{', '.join(f.name for f in fields) or 'none'} for it: keep one, and fill the others from keys, "
                "headers or metadata (`columns.key`, `columns.headers`, `columns.metadata`)",
            )
        kind = fields[0].field_type
        if not isinstance(kind, (BinaryType, FixedType, StringType)):
            raise TableError("LC4008", f"column {fields[0].name} is {kind}: raw bytes need binary, fixed or string")
        self._name = fields[0].name
        self._schema = pa.schema([arrow_field(fields[0])])
        self._length = len(kind) if isinstance(kind, FixedType) else None

    def decode(self, values: Sequence[bytes]) -> Decoded:
        bad = self._unfit(values)
        positions = [i for i in range(len(values)) if i not in bad]
        kept = values if not bad else [values[i] for i in positions]
        kind = self._schema.field(0).type
        array = pa.array(kept, kind if self._length is not None else pa.binary())
        decoded = Decoded(table=pa.Table.from_arrays([array.cast(kind)], schema=self._schema))
        return with_positions(decoded, positions, [Reject.of(i, why) for i, why in bad.items()]) if bad else decoded

    def _unfit(self, values: Sequence[bytes]) -> dict[int, Refusal]:
        if self._length is not None:
            return {i: self._refused(f"is {len(v)} bytes") for i, v in enumerate(values) if len(v) != self._length}
        if pa.types.is_string(self._schema.field(0).type):
            return {i: self._refused("is not valid UTF-8") for i in bad_texts(values)}
        return {}

    def _refused(self, what: str) -> Refusal:
        due = "" if self._length is None else f", column {self._name} takes {self._length}"
        return Refusal("wrong_value", self._name, f"the value {what}{due}")


class TextDecoder(BaseDecoder):
    """Decodes values that are one text each, for a column of any type that a text can be read as."""

    def __init__(self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset()) -> None:
        (self._column,) = text_columns(schema, options, skip)
        self._schema = pa.schema([self._column.target])

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return halved(values, self._block)

    def _block(self, values: Sequence[bytes]) -> Decoded:
        name = self._column.name
        bad = {i: Refusal("wrong_value", name, "the text is not valid UTF-8") for i in bad_texts(values)}
        texts = pa.array([None if i in bad else v for i, v in enumerate(values)], pa.binary()).cast(pa.string())
        if (wrong := wrong_texts(self._column, texts)) is not None:
            bad |= {i: Refusal("wrong_value", name, wrong[1]) for i in pc.indices_nonzero(wrong[0]).to_pylist()}
        positions = [i for i in range(len(values)) if i not in bad]
        array = filled(self._column, texts.take(pa.array(positions, pa.int64())) if bad else texts)
        decoded = Decoded(table=pa.Table.from_arrays([array], schema=self._schema))
        return with_positions(decoded, positions, [Reject.of(i, why) for i, why in bad.items()]) if bad else decoded
