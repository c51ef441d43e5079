# SPDX-License-Identifier: Apache-2.0
"""What a landing declares about times and encodings, resolved against the schema of its table.

Rules are looked up by field id. A rule for a missing column, or one that it does not fit, is listed in ``wrong``, as
are problems of the table, so that all are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, FixedType, IcebergType

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats.time_values import rule_problem
from airflow_provider_lakecommit.landing import meant

OCTETS = (BinaryType, FixedType)
"""Types that need an encoding."""
UNSCALED = "base64"
"""The encoding of a decimal as the bytes of a whole number, without the point."""
_WITH_UNSCALED = ("json", "json_schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRules:
    """Rules of dates and times, and encodings of bytes, by field id."""

    times: dict[int, str] = field(default_factory=dict)
    encodings: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    format: str = "JSON"

    @classmethod
    def of(cls, schema: Schema, options: FormatOptions) -> ColumnRules:
        wrong: list[str] = []

        def valid(
            key: str, declared: Mapping[str, str], problem: Callable[[IcebergType, str], str | None]
        ) -> Iterator[tuple[int, str]]:
            for path, rule in declared.items():
                try:
                    found = schema.find_field(path)
                except ValueError:
                    wrong.append(no_column(key, path, [field.name for field in schema.fields]))
                    continue
                if (text := problem(found.field_type, rule)) is not None:
                    wrong.append(f"{key}: column {path} {text}")
                else:
                    yield found.field_id, rule

        times = dict(valid("timestamps", options.timestamps, rule_problem))
        encodings = dict(valid("encodings", options.encodings, partial(_encoding_problem, options.format)))
        return cls(times=times, encodings=encodings, wrong=wrong, format=options.format.upper())


def no_column(key: str, path: str, names: Collection[str]) -> str:
    """Return the mistake of an option for a column that the table lacks."""
    return f"{key}: the table has no column {path!r} (its columns are {', '.join(names)}){meant(path, names)}"


def _encoding_problem(format: str, kind: IcebergType, encoding: str) -> str | None:
    unscaled = isinstance(kind, DecimalType) and encoding == UNSCALED and format in _WITH_UNSCALED
    if isinstance(kind, OCTETS) or unscaled:
        return None
    return f"is {kind}, encodings need binary or fixed, and {UNSCALED} in {' and '.join(_WITH_UNSCALED)} for decimals"
