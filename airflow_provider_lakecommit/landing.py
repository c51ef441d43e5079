# SPDX-License-Identifier: Apache-2.0
"""The declaration of one pipeline, topics to table: one frozen object, one parser for arguments and YAML, one error
text.

Contract: a :class:`Landing` is complete and valid once constructed, touches no network and reads no connection, so it
may stand at the top of a DAG file. ``spec_version`` hashes only what changes the rows and leaves defaults out, so that
a new release with a new option voids nothing.

Failure story: every mistake (unknown key, wrong type, value out of range, impossible combination) is a
:class:`SpecError` that names the landing, the field, the value and what is allowed; several mistakes are reported
together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.core.identity import group_id
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.routing import Destination, Role, Route, row_tables
from airflow_provider_lakecommit.declared.checks import (
    CHECKS,
    METADATA_TYPES,
    PARSED,
    all_wrong_at_once,
    parsed_value,
    wrong_values,
)
from airflow_provider_lakecommit.declared.connected import REGISTRY, SECTIONS, Connected, read_connected
from airflow_provider_lakecommit.declared.route import route_of, routed_tables
from airflow_provider_lakecommit.declared.spec_hash import DECODING, SHAPING, plain_values, spec_hash
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.registry.settings import with_registry

if TYPE_CHECKING:
    from airflow.sdk import Asset

__all__ = ["DEFAULT_CONTROL_TOPIC", "METADATA_COLUMNS", "Landing", "LandingSpec", "load_spec", "sections_of"]

DEFAULT_CONTROL_TOPIC = "control-lakecommit"
METADATA_COLUMNS = tuple(METADATA_TYPES)
"""Columns filled from the record itself under ``metadata_columns``."""


@all_wrong_at_once
@dataclass(frozen=True, kw_only=True)
class Landing:
    """One pipeline, topics to table.

    :param name: unique name; part of the control group id and of every identity
    :param topics: a topic or several, all with the same kind of record
    :param table: ``namespace.table`` that the rows are appended to
    :param format: encoding of the record values; ``json`` (one object per record), ``json_schema`` (the same, behind
        the id of its schema in a registry), ``avro`` and ``protobuf`` (behind such an id, too, unless ``schema`` states
        theirs), ``csv``, or ``raw`` (bytes as they are, into the one column that nothing else fills)
    :param schema: the schema of all records, where they name none: of Avro as a mapping or as JSON text, of Protobuf as
        the text of a ``.proto`` file or a serialized descriptor set in base64
    :param reader_schema: of Avro, the schema by which records are to be read, as a mapping or as JSON text: the aliases
        of its fields are older names of columns, their defaults fill columns that a record's schema lacks
    :param message: full name of the Protobuf message that records are; by default the one that they name, or the first
        of ``schema``
    :param csv: of format ``csv``: ``columns``, the names of a record's fields in their order; ``delimiter`` (``,``),
        ``quote`` (``"``), ``null_text``, which is null where it has no quotes (the empty text), and ``rows``: ``one``
        or ``many`` to a record
    :param timestamps: how a timestamp, date or time is written in the records, per column path (``a.b`` for nested
        ones, ``.element``, ``.key`` and ``.value`` within lists and maps): ``iso8601`` (default), ``epoch_seconds``,
        ``epoch_millis``, ``epoch_micros``, ``epoch_nanos``, for dates ``epoch_days``, for times ``seconds_of_day``,
        ``millis_of_day``, ``micros_of_day``, ``nanos_of_day``, or a strptime pattern
    :param encodings: how the bytes of a binary or fixed column are written in the records, per column path:
        ``base64``, ``base64url``, ``hex`` or ``utf8``; each such column needs one
    :param start: where a topic that was never landed begins: ``earliest`` or ``latest``
    :param unknown_fields: what happens to fields that the table lacks: ``ignore`` (counted) or ``dead_letter``
    :param evolve: what a window may change in its tables before it is written: ``none``; ``add`` optional columns that
        the records for a table have, or that its SQL gives, and the table lacks; ``widen`` types too (int to long,
        float to double, more digits)
    :param on_incompatible: records that no such change makes fit, where a window's sample shows some: ``dead_letter``
        rejects them as any other, ``stop`` plans no window with them
    :param dead_letter_table: table for rejected records, made if missing; without it a rejected record blocks its range
    :param dead_letter_max_records: rejected records that a slice may have
    :param dead_letter_max_ratio: share of rejected records that a slice may have, judged from ``1 / ratio`` rejected
        records on
    :param key: which columns the key of a record fills: ``column`` with the whole key, or ``columns`` with its fields
        (a list, or a mapping of columns to fields); ``format`` (``string``, ``raw``, ``json``), ``invalid``: ``reject``
        the record, or ``ignore`` the key
    :param headers: columns that a header fills, each with the header's name, or with ``name``, ``format``, ``repeated``
        (``last`` or ``first`` is taken) and ``invalid``
    :param metadata_columns: fill the columns of :data:`METADATA_COLUMNS`
    :param create: how to make the table if it is missing: ``schema``, ``partition_by``, ``sort_order``,
        ``properties``
    :param route: which table takes a record, by a field of its value (``field``) or the name of its schema in a
        registry (``by: schema``): ``tables`` (by the field's text, or that name), ``other`` (``dead_letter``, ``fail``,
        or a table), ``create`` (by table, each as `create`), ``missing`` (of a table that nobody makes: ``fail``, or
        ``dead_letter`` its records); `table` is one of these, and leads
    :param unwrap: ``debezium``: values are change envelopes, of which the row is ``after``, of a delete ``before``; or
        a mapping with ``envelope: debezium`` and ``columns``, paths in the envelope by the columns that they fill
    :param transform: SQL between record and row, ``select … from record where …``, of one record each; the columns that
        it gives are those of the table by name. With `route` a mapping of tables to SQL
    :param record_schema: the columns of ``record``, a list as in ``create.schema``; the rules of `timestamps`,
        `encodings` and `unknown_fields` are for these then
    :param functions: further functions of the SQL by name, each as ``module.function``, with annotated types
    :param groups: number of partition groups, that is of mapped write tasks (default 1)
    :param max_records: most source records per window; the default lands all there is
    :param max_bytes: most estimated bytes per window
    :param slice_records: most records per slice, the unit that is never read again; under `target_file_size` only one
        that is not the default counts
    :param target_window: how long a window should take, written as `completion_timeout` is; its records, slices and
        groups follow from what the newest windows took
    :param target_file_size: bytes that a file of the data table should have; slices hold as many records as it takes
    :param replicas: how many times each slice is done at once, by jobs of their own; the first report of it wins
    :param speculation: what is left of a group is done a second time, where nothing was reported for so many times what
        the median slice of the window takes, and for 10 seconds; not with replicas
    :param group_by: ``partition``: a group has the partitions of one number modulo `groups`; ``load``: slices are dealt
        out evenly, those of one partition too
    :param branch: branch that is written to; one other than ``main`` must exist
    :param on_spec_change: ``finish`` publishes slices written under an older spec, ``void`` reads them again
    :param completion_timeout: how long a cycle may claim ranges that it has not finished: a timedelta, seconds, or a
        text as ``1h30m``
    :param commit_files: most files of one snapshot; what is pending is published in chunks of so many, oldest first
    :param stalled_cycles: cycles in a row whose commits failed for all tables; then no window is planned until one
        commit completes
    :param slow_down: plan smaller and rarer windows as soon as a commit has failed
    :param max_open_cycles: windows that may be under way at once; no limit if it is ``None``, as for the next three
    :param max_pending_slices: slices per table that may be under way or wait to be published; then no window is
        planned until some are
    :param max_pending_files: the same in data files; those of a slice that is under way are estimated
    :param max_pending_bytes: the same in bytes of source records
    :param location_providers: classes that a table may name in ``write.py-location-provider.impl``, as
        ``module.Class``; pyiceberg's own need no word. They are imported where files are written, beside credentials
    :param kafka_config_id: Airflow connection of the brokers
    :param registry_conn_id: Airflow connection of the schema registry, for formats that have one
    :param iceberg_conn_id: Airflow connection of the catalog
    :param control_topic: topic of the commit protocol
    :param control_events: form of the events that are sent there: ``1.12``, or ``1.10`` (as a text, in quotes) where
        Iceberg sink connectors up to 1.10 share the topic; either is read
    :raises SpecError: naming all that is wrong
    """

    name: str
    topics: str | Sequence[str]
    table: str
    format: str = "json"
    schema: str | Mapping[str, Any] = ""
    reader_schema: str | Mapping[str, Any] = ""
    message: str = ""
    csv: Mapping[str, Any] = field(default_factory=dict)
    timestamps: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    start: str = "earliest"
    unknown_fields: str = "ignore"
    evolve: str = "none"
    on_incompatible: str = "dead_letter"
    dead_letter_table: str | None = None
    dead_letter_max_records: int = 1000
    dead_letter_max_ratio: float = 0.01
    key: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    metadata_columns: bool = False
    create: Mapping[str, Any] | None = None
    route: Mapping[str, Any] | None = None
    unwrap: str | Mapping[str, Any] | None = None
    transform: str | Mapping[str, str] | None = None
    record_schema: Sequence[Mapping[str, Any]] | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    groups: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    slice_records: int = 250_000
    target_window: timedelta | None = None
    target_file_size: int | None = None
    group_by: str = "partition"
    replicas: int = 1
    speculation: float | None = None
    branch: str = "main"
    on_spec_change: str = "finish"
    completion_timeout: timedelta = timedelta(hours=1)
    commit_files: int = 10_000
    stalled_cycles: int = 3
    slow_down: bool = False
    max_open_cycles: int | None = 16
    max_pending_slices: int | None = 8_000
    max_pending_files: int | None = 100_000
    max_pending_bytes: int | None = 1 << 40
    location_providers: Sequence[str] = ()
    kafka_config_id: str = "kafka_default"
    registry_conn_id: str | None = None
    iceberg_conn_id: str = "iceberg_default"
    control_topic: str | None = None
    control_events: str = "1.12"

    def __post_init__(self) -> None:
        for key in PARSED:
            object.__setattr__(self, key, parsed_value(key, getattr(self, key)))
        if wrong := wrong_values({key: getattr(self, key) for key in CHECKS}):
            raise SpecError(f"landing {self.name!r}: " + "; ".join(wrong))

    @property
    def topic_names(self) -> tuple[str, ...]:
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Where rows and rejects go; the leading data table is the first."""
        rows = routed_tables(self.table, self.route)
        dead = (self.dead_letter_table,) if self.dead_letter_table else ()
        return (
            *(Destination(table=t, role=Role.ROWS) for t in rows),
            *(Destination(table=t, role=Role.DEAD_LETTERS) for t in dead),
        )

    @property
    def routing(self) -> Route | None:
        """Which table takes a record, where there are several."""
        return route_of(self.route)

    @property
    def data_tables(self) -> tuple[str, ...]:
        """The tables that take rows, the leading one first."""
        return row_tables(self.destinations)

    def transform_of(self, table: str) -> str | None:
        """The SQL between records and the rows of a data table."""
        stated = self.transform
        return stated.get(table) if isinstance(stated, Mapping) else stated

    @property
    def one_row_each(self) -> bool:
        """Is each record that is not rejected exactly one row?"""
        return self.format_options.one_row_each and self.transform is None

    def create_of(self, table: str) -> Mapping[str, Any] | None:
        """How a data table is made if it is missing."""
        return self.create if table == self.table or self.routing is None else self.routing.create.get(table)

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables of the landing, the data table first."""
        return tuple(d.table for d in self.destinations)

    @property
    def control_topic_name(self) -> str:
        return self.control_topic or DEFAULT_CONTROL_TOPIC

    @property
    def group_id(self) -> str:
        return group_id(self.name)

    @property
    def budget(self) -> Budget:
        return Budget(max_records=self.dead_letter_max_records, max_ratio=self.dead_letter_max_ratio)

    @property
    def format_options(self) -> FormatOptions:
        """What a decoder of the landing's records is made from."""
        return FormatOptions(
            format=self.format,
            timestamps=self.timestamps,
            encodings=self.encodings,
            unknown_fields=self.unknown_fields,
            schema=str(self.schema),
            message=self.message,
            csv=self.csv,
            reader_schema=str(self.reader_schema),
        )

    @property
    def pending_budget(self) -> PendingBudget:
        return PendingBudget(
            open_cycles=self.max_open_cycles,
            slices=self.max_pending_slices,
            files=self.max_pending_files,
            bytes=self.max_pending_bytes,
        )

    @property
    def asset(self) -> Asset:
        """The Airflow asset of the data table, made without reading a connection; needs Airflow."""
        from airflow_provider_lakecommit.assets import asset_of

        return asset_of(self)

    @property
    def table_assets(self) -> Mapping[str, Asset]:
        """By table, the assets of single tables, where `route` names several; needs Airflow."""
        from airflow_provider_lakecommit.assets import table_assets_of

        return table_assets_of(self)

    @property
    def spec_version(self) -> str:
        """Hash of what changes the rows; fields at their default are left out."""
        return spec_hash(self, SHAPING)

    @property
    def shaping(self) -> dict[str, Any]:
        """What the spec version is of, as plain values."""
        return {key: value for key, value in self.to_dict().items() if key in SHAPING}

    @property
    def decoding(self) -> str:
        """Hash of what decides, with the data table's columns, whether a record becomes rows or a reject."""
        return spec_hash(self, DECODING)

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain values, defaults left out; :meth:`from_dict` reads it back."""
        return plain_values(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Landing:
        """Parse plain values, as from YAML.

        :raises SpecError: unknown keys (with the nearest known one), missing keys, wrong values
        """
        return cls(**values)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Landing:
        """The landing of a YAML spec, whose sections in place of connections are not needed."""
        return load_spec(path, connections=False).landing


@dataclass(frozen=True, kw_only=True)
class LandingSpec:
    """A YAML spec: a landing, sections in place of connections, and the secret variables that it names."""

    landing: Landing
    kafka: Mapping[str, Any] = field(repr=False)
    catalog: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_spec(path: str | Path, *, connections: bool = True, elsewhere: Collection[str] = ()) -> LandingSpec:
    """Read a YAML spec.

    :param connections: are the sections that stand in for Airflow connections needed?
    :param elsewhere: those of them that the caller has from elsewhere

    :raises SpecError: unreadable file, no mapping, or anything :class:`Landing` refuses; all that is wrong together
    """
    kinds = {f.name: str(f.type) for f in dataclasses.fields(Landing)}
    found = read_connected(path, kinds, Landing.from_dict, connections=connections, elsewhere=elsewhere)
    return LandingSpec(landing=found.declared, **sections_of(found), variables=found.variables)


def sections_of(found: Connected[Any]) -> dict[str, Any]:
    """The sections of a spec as those who connect take them: the registry's settings are among those of the brokers."""
    sections = {name: found.sections[name] for name in SECTIONS}
    return {**sections, "kafka": with_registry(sections["kafka"], found.sections[REGISTRY])}
