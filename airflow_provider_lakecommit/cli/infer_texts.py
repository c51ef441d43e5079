# SPDX-License-Identifier: Apache-2.0
"""Columns of a `create` section for records that are CSV, or bytes as they are.

Contract: pure. :func:`csv_as_json` converts rows of CSV, read by the landing's own decoder, to equivalent JSON: a
number or boolean as JSON writes it stays one, all else is text, so a number with a leading zero stays text. From there
on it is inferred like JSON. :func:`raw_columns` is the one column of ``raw``. Invalid rows are left out: decoding the
sample with the result reports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats import InferredColumn, bad_texts, decoder_for

Sample = Sequence[tuple[str, bytes | None]]
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false")


def csv_as_json(taken: Sample, options: FormatOptions) -> list[tuple[str, bytes | None]]:
    """Return each row as a JSON object, with the position of its record; tombstones unchanged.

    :param options: of the landing
    """
    texts = Schema(*(NestedField(n, name, StringType()) for n, name in enumerate(options.csv["columns"], 1)))
    decoder = decoder_for(texts, FormatOptions(format="csv", csv=options.csv))
    values = [(place, value) for place, value in taken if value is not None]
    decoded = decoder.decode([value for _, value in values])
    places = range(decoded.table.num_rows) if decoded.records is None else decoded.records
    rows = zip(places, decoded.table.to_pylist(), strict=True)
    tombstones: list[tuple[str, bytes | None]] = [(place, None) for place, value in taken if value is None]
    return [*tombstones, *((values[i][0], _object(row).encode()) for i, row in rows)]


def raw_columns(taken: Sample) -> list[InferredColumn]:
    """Return the column that takes all of these values; empty without values."""
    values = [value for _, value in taken if value is not None]
    if not values:
        return []
    text = not bad_texts(values)
    note = "value: all sampled values are UTF-8; binary also takes others" if text else "value: some are not UTF-8"
    return [InferredColumn(name="value", type="string" if text else "binary", required=True, notes=(note,))]


def _object(row: dict[str, str | None]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {_json(text)}" for name, text in row.items()) + "}"


def _json(text: str | None) -> str:
    return text if text is not None and _PLAIN.fullmatch(text) else json.dumps(text)
