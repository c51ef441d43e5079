# SPDX-License-Identifier: Apache-2.0
"""The decoders of a landing, made from its declaration and the columns of its tables.

Contract: one :class:`~airflow_provider_lakecommit.formats.transforms.router.BlockDecoder` for all data tables of a
landing combines format, route and SQL. It leaves columns of keys and headers alone.

Failure story: a table that the landing cannot fill is a :class:`~airflow_provider_lakecommit.exceptions.TableError`
naming every failing column, before a record is read; records that need a registry which the settings lack are a
:class:`~airflow_provider_lakecommit.exceptions.SpecError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import replace
from operator import methodcaller
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, NestedField

from airflow_provider_lakecommit.core import UNCOUNTED, WITH_REGISTRY, FormatOptions, Route
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
    with_header,
)
from airflow_provider_lakecommit.iceberg import columns_from_spec
from airflow_provider_lakecommit.kafka import headers_of
from airflow_provider_lakecommit.landing import ENVELOPE_ROOTS, IS_DELETED, PAYLOAD, Landing, columns_of_unwrap, meant
from airflow_provider_lakecommit.spark.key_columns import key_columns, registry_for
from airflow_provider_lakecommit.spark.metadata import mistyped
from airflow_provider_lakecommit.spark.record_parts import filled_by_parts

Kafka = Mapping[str, Any]


def block_decoder(landing: Landing, schemas: Mapping[str, Schema], kafka: Kafka | None = None) -> BlockDecoder:
    """Return the decoder of values into rows of the landing's tables.

    :param schemas: schemas of its existing tables of rows, the leading one among them
    :param kafka: settings of the source, with a registry's; without them, formats that need a registry cannot be
        decoded
    :raises TableError: a table has a column that it cannot fill
    :raises RegistryError: the records name registry schemas, and the settings have no usable registry
    """
    decoders = {name: _row_decoder(landing, name, schema, kafka) for name, schema in schemas.items()}
    if (route := landing.routing) is None:
        return OneTable(landing.table, decoders[landing.table])
    return _router(landing, route, decoders, kafka)


def check_schema(landing: Landing, schema: Schema, table: str | None = None) -> None:
    """Check that this landing can fill a table of this schema.

    :param table: one of its tables other than the leading one
    :raises TableError: naming every column that it cannot fill
    """
    _row_decoder(landing, table or landing.table, schema, None).close()
    key_columns(landing, schema).close()


def check_rules(landing: Landing, schemas: Mapping[str, Schema]) -> None:
    """Check that each rule of a landing with several tables is for a column of at least one of them.

    :raises TableError: naming the rules without a column
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
    """Return the columns that a landing's SQL gives for a table.

    :param schema: the table's schema
    :raises KeyError: the landing has no SQL for it
    :raises TableError: the SQL reads more than one record, or cannot be run
    """
    if (sql := landing.transform_of(table)) is None:
        raise KeyError(table)
    with _engine_of_sql():
        from airflow_provider_lakecommit.formats import given_by
    with closing(_unwrapped(landing, _read_schema(landing, table, schema), None)) as records:
        return given_by(sql, records.schema, landing.transform.functions)


def tables_of_values(landing: Landing, values: Sequence[bytes], kafka: Kafka | None) -> Mapping[str, Sequence[int]]:
    """Return the positions of the values of each table; values of no table are left out.

    :raises SpecError: the records name registry schemas, and the settings have no registry
    """
    if (route := landing.routing) is None:
        return {landing.table: range(len(values))}
    with closing(_router(landing, route, {}, kafka)) as router:
        return router.tables_of(values)


_headers_of = methodcaller("headers")


class _WithHeaders(Protocol):
    def headers(self) -> Any: ...


def with_schemas(landing: Landing, records: Sequence[_WithHeaders], values: Sequence[bytes]) -> Sequence[bytes]:
    """Return the values as the decoders of a format with a registry read them: each after the schema that its record
    names in a header, if any. Unreadable headers name no schema.
    """
    if landing.decoding.name not in WITH_REGISTRY or landing.decoding.schema or not _any_headers(records):
        return values
    return [with_header(value, headers_of(record)) for value, record in zip(values, records, strict=True)]


def _any_headers(records: Sequence[_WithHeaders]) -> bool:
    """Return True if any record has headers: most topics have none."""
    try:
        return any(map(_headers_of, records))
    except Exception:
        # A name that is not text.
        return True


def filled_elsewhere(landing: Landing) -> Set[str]:
    """Return the top-level columns that are not filled from the records' values."""
    marked = landing.upsert.key and landing.transform.unwrap is None
    other = frozenset((*landing.record_columns, *((IS_DELETED,) if marked else ())))
    return filled_by_parts(landing.columns.key, landing.columns.headers) | other


def _router(landing: Landing, route: Route, decoders: Mapping[str, Decoder], kafka: Kafka | None) -> Router:
    """Return the reader of the routing field: in the value, in the row of an envelope (with `unwrap`, unless the path
    is the envelope's own), or the name of the schema.
    """
    if route.by_schema:
        names = schema_names_for(landing.decoding.name, registry_for(landing, landing.decoding.name, kafka))
        return Router(route, names, decoders, [COLUMN])
    options = replace(landing.format_options, timestamps={}, encodings={}, unknown_fields=UNCOUNTED)
    if landing.transform.unwrap is None:
        return Router(route, _decoder(landing, field_schema([route.field]), options, kafka), decoders)
    root = route.field.partition(".")[0]
    if root in ENVELOPE_ROOTS:
        paths = [
            route.field,
            *([f"{PAYLOAD}.{route.field}"] if landing.decoding.name == "json" and root != PAYLOAD else ()),
        ]
        return Router(route, _decoder(landing, field_schema(paths), options, kafka), decoders, paths)
    plain = replace(options, unknown_fields="ignore")
    row = UnwrapDecoder(lambda of, to: _decoder(landing, of, to, kafka), field_schema([route.field]), {}, plain)
    return Router(route, row, decoders)


def filled_beside_rows(landing: Landing) -> Set[str]:
    """Return the top-level columns that no field of a record's row fills, even one of the same name."""
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
    beside: tuple[str, ...] = ()
    if landing.upsert.key and landing.transform.unwrap is not None and IS_DELETED not in read.column_names:
        beside = (IS_DELETED,)
        number = max(read.field_ids, default=0) + 1
        read = Schema(*read.fields, NestedField(number, IS_DELETED, BooleanType(), required=False))
    records = _unwrapped(landing, read, kafka)
    return TransformDecoder(records, sql, schema, skip, landing.transform.functions, beside)


@contextmanager
def _engine_of_sql() -> Iterator[None]:
    """Import the SQL engine, which only landings with SQL need.

    :raises TableError: it is not installed
    """
    try:
        yield
    except ModuleNotFoundError as e:
        raise TableError(
            "LC5006",
            f"a transform needs {e.name}: install airflow-provider-lakecommit[transform], also for Spark's tasks",
        ) from e


def _unwrapped(landing: Landing, schema: Schema, kafka: Kafka | None, skip: Set[str] = frozenset()) -> Decoder:
    """Return the decoder of the values, which may be in an envelope."""
    options = landing.format_options
    if landing.routing is not None:
        # Each table takes the rules of its own columns.
        options = options.of_columns({field.name for field in schema.fields})
    if landing.transform.unwrap is None and landing.transform.sql is None:
        return _decoder(landing, schema, options, kafka, skip)
    own = Schema(*(f for f in schema.fields if f.name not in skip))
    elsewhere = filled_elsewhere(landing) - {f.name for f in own.fields}
    described = replace(
        options, timestamps=_without(options.timestamps, elsewhere), encodings=_without(options.encodings, elsewhere)
    )
    if landing.transform.unwrap is None:
        return _decoder(landing, own, described, kafka)
    columns = columns_of_unwrap(landing.transform.unwrap)
    return UnwrapDecoder(lambda of, to: _decoder(landing, of, to, kafka), own, columns, described)


def _without(rules: Mapping[str, str], columns: Set[str]) -> dict[str, str]:
    """Return the rules without those of columns that keys and headers fill."""
    return {path: rule for path, rule in rules.items() if path.partition(".")[0] not in columns}


def _decoder(
    landing: Landing, schema: Schema, options: FormatOptions, kafka: Kafka | None, skip: Set[str] = frozenset()
) -> Decoder:
    return decoder_for(
        schema, options, skip, None if landing.decoding.schema else registry_for(landing, landing.decoding.name, kafka)
    )


def _read_schema(landing: Landing, table: str, schema: Schema) -> Schema:
    """Return the columns of a table that are read from the values."""
    if landing.transform_of(table) is None:
        return schema
    return columns_from_spec(landing.transform.record_schema or ())
