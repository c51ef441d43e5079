# SPDX-License-Identifier: Apache-2.0
"""The decoders of a landing, made from what it declares and from the columns of its tables.

Contract: one :class:`~airflow_provider_lakecommit.formats.transforms.block.BlockDecoder` for all data tables of a
landing, in which format, route and SQL stand around each other. Columns that keys and headers fill are left alone.

Failure story: a table that the landing cannot fill is a :class:`~airflow_provider_lakecommit.exceptions.TableError`
naming every column that stands against it, before a record is read; records that name schemas of a registry, where the
settings name none, are a :class:`~airflow_provider_lakecommit.exceptions.SpecError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import UNCOUNTED, FormatOptions, Route
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import (
    COLUMN,
    BlockDecoder,
    Decoder,
    OneTable,
    Router,
    UnwrapDecoder,
    decoder_for,
    field_schema,
    schema_names_for,
)
from airflow_provider_lakecommit.iceberg import create_from_spec
from airflow_provider_lakecommit.landing import ENVELOPE_ROOTS, PAYLOAD, Landing, columns_of_unwrap, meant
from airflow_provider_lakecommit.spark.key_columns import key_columns, registry_for
from airflow_provider_lakecommit.spark.metadata import mistyped
from airflow_provider_lakecommit.spark.record_parts import filled_by_parts

__all__ = [
    "block_decoder",
    "check_rules",
    "check_schema",
    "filled_beside_rows",
    "filled_elsewhere",
    "given_columns",
    "tables_of_values",
]

Kafka = Mapping[str, Any]


def block_decoder(landing: Landing, schemas: Mapping[str, Schema], kafka: Kafka | None = None) -> BlockDecoder:
    """By which values become rows of the landing's tables.

    :param schemas: of its tables of rows, as many as are there; the leading one is
    :param kafka: settings of the source, with those of a registry among them; without, nothing can be decoded that
        needs one
    :raises TableError: a table has a column that it cannot fill
    :raises RegistryError: the records name schemas of a registry, and the settings none that can be used
    """
    decoders = {name: _row_decoder(landing, name, schema, kafka) for name, schema in schemas.items()}
    if (route := landing.routing) is None:
        return OneTable(landing.table, decoders[landing.table])
    return _router(landing, route, decoders, kafka)


def check_schema(landing: Landing, schema: Schema, table: str | None = None) -> None:
    """Whether this landing can fill a table of this schema.

    :param table: another one of its tables than the leading one
    :raises TableError: naming every column that it cannot
    """
    _row_decoder(landing, table or landing.table, schema, None).close()
    key_columns(landing, schema).close()


def check_rules(landing: Landing, schemas: Mapping[str, Schema]) -> None:
    """Whether each rule of a landing with several tables is for a column of one of them at least.

    :raises TableError: naming those that are for none
    """
    if landing.routing is None:
        return
    names = sorted({field.name for t, s in schemas.items() for field in _read_schema(landing, t, s).fields})
    declared = {"timestamps": landing.timestamps, "encodings": landing.decoding.encodings}
    wrong = [
        f"{key}: no table has a column {path!r} (columns are {', '.join(names)}){meant(path, names)}"
        for key, rules in declared.items()
        for path in rules
        if path.partition(".")[0] not in names
    ]
    if wrong:
        raise TableError("LC5004", "; ".join(wrong))


def given_columns(landing: Landing, table: str, schema: Schema) -> pa.Schema:
    """The columns that a landing's SQL gives for a table.

    :param schema: of the table
    :raises KeyError: the landing has no SQL for it
    :raises TableError: it is not of one record each, or cannot be run
    """
    if (sql := landing.transform_of(table)) is None:
        raise KeyError(table)
    with _engine_of_sql():
        from airflow_provider_lakecommit.formats import given_by
    with closing(_unwrapped(landing, _read_schema(landing, table, schema), None)) as records:
        return given_by(sql, records.schema, landing.transform.functions)


def tables_of_values(landing: Landing, values: Sequence[bytes], kafka: Kafka | None) -> Mapping[str, Sequence[int]]:
    """By table of a landing the places of the values that are for it; those that are for none are left out.

    :raises SpecError: the records name schemas of a registry, and the settings none
    """
    if (route := landing.routing) is None:
        return {landing.table: range(len(values))}
    with closing(_router(landing, route, {}, kafka)) as router:
        return router.tables_of(values)


def filled_elsewhere(landing: Landing) -> Set[str]:
    """Top-level columns that are not filled from the records' values."""
    return filled_by_parts(landing.columns.key, landing.columns.headers) | frozenset(landing.record_columns)


def _router(landing: Landing, route: Route, decoders: Mapping[str, Decoder], kafka: Kafka | None) -> Router:
    """Reads the field by which records are routed: of the value, or of the row in an envelope, where `unwrap` has one
    and the path is not one of the envelope's own; or the names of their schemas.
    """
    if route.by_schema:
        names = schema_names_for(landing.format, registry_for(landing, landing.format, kafka))
        return Router(route, names, decoders, [COLUMN])
    options = replace(landing.format_options, timestamps={}, encodings={}, unknown_fields=UNCOUNTED)
    if landing.transform.unwrap is None:
        return Router(route, _decoder(landing, field_schema([route.field]), options, kafka), decoders)
    root = route.field.partition(".")[0]
    if root in ENVELOPE_ROOTS:
        paths = [route.field, *([f"{PAYLOAD}.{route.field}"] if landing.format == "json" and root != PAYLOAD else ())]
        return Router(route, _decoder(landing, field_schema(paths), options, kafka), decoders, paths)
    plain = replace(options, unknown_fields="ignore")
    row = UnwrapDecoder(lambda of, to: _decoder(landing, of, to, kafka), field_schema([route.field]), {}, plain)
    return Router(route, row, decoders)


def filled_beside_rows(landing: Landing) -> Set[str]:
    """Top-level columns that no field of a record's row fills, though it may have their names."""
    envelope = (
        frozenset[str]() if landing.transform.unwrap is None else columns_of_unwrap(landing.transform.unwrap).keys()
    )
    return filled_elsewhere(landing) | envelope


def _row_decoder(landing: Landing, table: str, schema: Schema, kafka: Kafka | None) -> Decoder:
    if wrong := mistyped(schema, landing.record_columns):
        raise TableError("LC5005", "; ".join(wrong))
    skip = filled_elsewhere(landing)
    read = _read_schema(landing, table, schema)
    if (sql := landing.transform_of(table)) is None:
        return _unwrapped(landing, read, kafka, skip)
    with _engine_of_sql():
        from airflow_provider_lakecommit.formats import TransformDecoder
    return TransformDecoder(_unwrapped(landing, read, kafka), sql, schema, skip, landing.transform.functions)


@contextmanager
def _engine_of_sql() -> Iterator[None]:
    """While it is imported, which only landings with SQL need.

    :raises TableError: it is not installed
    """
    try:
        yield
    except ModuleNotFoundError as e:
        raise TableError(
            "LC5006",
            f"a transform needs {e.name}: install airflow-provider-lakecommit[transform], also where Spark's tasks run",
        ) from e


def _unwrapped(landing: Landing, schema: Schema, kafka: Kafka | None, skip: Set[str] = frozenset()) -> Decoder:
    """The columns that are read from the values, which may be in an envelope."""
    options = _options(landing, schema)
    if landing.transform.unwrap is None and landing.transform.sql is None:
        return _decoder(landing, schema, options, kafka, skip)
    own = Schema(*(f for f in schema.fields if f.name not in skip))
    elsewhere = filled_elsewhere(landing) - {f.name for f in own.fields}
    told = replace(
        options, timestamps=_without(options.timestamps, elsewhere), encodings=_without(options.encodings, elsewhere)
    )
    if landing.transform.unwrap is None:
        return _decoder(landing, own, told, kafka)
    columns = columns_of_unwrap(landing.transform.unwrap)
    return UnwrapDecoder(lambda of, to: _decoder(landing, of, to, kafka), own, columns, told)


def _without(rules: Mapping[str, str], columns: Set[str]) -> dict[str, str]:
    """Rules less those of columns that keys and headers fill, which have them there."""
    return {path: rule for path, rule in rules.items() if path.partition(".")[0] not in columns}


def _decoder(
    landing: Landing,
    schema: Schema,
    options: FormatOptions,
    kafka: Kafka | None,
    skip: Set[str] = frozenset(),
) -> Decoder:
    """The format's own."""
    return decoder_for(
        schema, options, skip, None if landing.decoding.schema else registry_for(landing, landing.format, kafka)
    )


def _read_schema(landing: Landing, table: str, schema: Schema) -> Schema:
    """The columns that are read from the values for a table."""
    if landing.transform_of(table) is None:
        return schema
    return create_from_spec({"schema": landing.transform.record_schema})[0]


def _options(landing: Landing, schema: Schema) -> FormatOptions:
    """Of several tables each takes the rules of the columns that it has."""
    options = landing.format_options
    return options if landing.routing is None else options.of_columns({field.name for field in schema.fields})
