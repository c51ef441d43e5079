# SPDX-License-Identifier: Apache-2.0
"""The declaration of one pipeline, topics to table: one frozen object, one parser for arguments and YAML, one error
text.

Contract: a :class:`Landing` is complete and valid once constructed, touches no network and reads no connection, so it
may stand at the top of a DAG file. It has at most 18 fields: options that few landings change are in sections.
``spec_version`` hashes only what changes the rows and leaves defaults out, so that a new release with a new option
voids nothing.

Failure story: every mistake (unknown key, wrong type, value out of range, impossible combination) is a
:class:`SpecError` that names the landing, the field, the value and what is allowed; several mistakes are reported
together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_lakecommit.core import Budget, FormatOptions, PendingBudget, Role, Route, group_id, tables_for
from airflow_provider_lakecommit.landing.checks import CHECKS, METADATA_TYPES, all_wrong_at_once, wrong_values
from airflow_provider_lakecommit.landing.connected import read_connected
from airflow_provider_lakecommit.landing.names import mistaken
from airflow_provider_lakecommit.landing.options import SECTION_KEYS, SECTIONS, from_flat, hint
from airflow_provider_lakecommit.landing.route import route_of, routed_tables
from airflow_provider_lakecommit.landing.row_checks import RowCheck, checks_of
from airflow_provider_lakecommit.landing.sections import (
    Backpressure,
    Columns,
    Connections,
    DeadLetters,
    Format,
    Maintain,
    Publish,
    Transform,
    Upsert,
    Window,
)
from airflow_provider_lakecommit.landing.spec_hash import DECODING, SHAPING, plain_values, spec_hash
from airflow_provider_lakecommit.landing.transform_checks import delete_values
from airflow_provider_lakecommit.landing.value_sections import columns_of_key

if TYPE_CHECKING:
    from airflow.sdk import Asset

DEFAULT_CONTROL_TOPIC = "control-lakecommit"
MAIN, AUDIT = "main", "audit"
"""The default branch of windows without checks, and with checks."""
METADATA_COLUMNS = tuple(METADATA_TYPES)
"""Columns filled from the record itself under ``columns.metadata: true``."""
MARK_COLUMNS = ("kafka_topic", "kafka_partition", "kafka_generation", "kafka_offset")
"""The default metadata columns of tables that the landing makes: they identify the record of a row."""


@all_wrong_at_once
@dataclass(frozen=True, kw_only=True)
class Landing:
    """One pipeline, topics to table.

    :param name: unique name; part of the control group id and of every identity
    :param topics: a topic or several, all with the same kind of record
    :param table: the table that rows are appended to, as ``namespace.table``
    :param format: encoding of the record values: its name (``json``, ``json_schema``, ``avro``, ``protobuf``, ``csv``,
        ``raw``), or a mapping of the name and its options
    :param timestamps: how a timestamp, date or time is written in the records, per column path (``a.b`` for nested
        ones, ``.element``, ``.key`` and ``.value`` within lists and maps): ``iso8601`` (default), ``epoch_seconds``,
        ``epoch_millis``, ``epoch_micros``, ``epoch_nanos``, for dates ``epoch_days``, for times ``seconds_of_day``,
        ``millis_of_day``, ``micros_of_day``, ``nanos_of_day``, or a strptime pattern
    :param evolve: what a window may change in its tables before it is written: ``none``; ``add`` optional columns that
        the records for a table have, or that its SQL gives, and the table lacks; ``widen`` types too (int to long,
        float to double, more digits)
    :param create: how to make the table if it is missing: ``schema``, ``partition_by``, ``sort_order``,
        ``properties``
    :param route: selects the table of a record, by a field of its value (``field``) or the name of its schema in a
        registry (``by: schema``): ``tables`` (by the field's text, or that name), ``other`` (``dead_letter``, ``fail``,
        or a table), ``create`` (by table, each as `create`), ``missing`` (for a missing table without it: ``fail``, or
        ``dead_letter`` its records); `table` is one of these, and the leading one
    :param dead_letter_table: table for rejected records, made if missing; without it a rejected record blocks its range
    :param transform: SQL between a record and its rows, or the unwrapping of change envelopes
    :param columns: columns that are not fields of the value, and fields without a column
    :param upsert: keep one row per key: the newest state of the source instead of all its changes
    :param dead_letters: how many records of a slice may be rejected
    :param window: the size of a window, its division, and its time limits
    :param backpressure: when to plan less because commits fail or slices wait to be published
    :param maintain: when runs compact the tables, and when a table needs that so much that nothing is planned
    :param publish: the branch that windows land on, and the checks that they pass before they are published
    :param connections: Airflow connections of the landing, and its control topic
    :raises SpecError: listing all mistakes
    """

    name: str
    topics: str | Sequence[str]
    table: str
    format: str | Mapping[str, Any] | Format = field(default_factory=Format)
    timestamps: Mapping[str, str] = field(default_factory=dict)
    evolve: str = "none"
    create: Mapping[str, Any] | None = None
    route: Mapping[str, Any] | None = None
    dead_letter_table: str | None = None
    transform: Transform = field(default_factory=Transform)
    columns: Columns = field(default_factory=Columns)
    upsert: Upsert = field(default_factory=Upsert)
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    window: Window = field(default_factory=Window)
    backpressure: Backpressure = field(default_factory=Backpressure)
    maintain: Maintain = field(default_factory=Maintain)
    publish: Publish = field(default_factory=Publish)
    connections: Connections = field(default_factory=Connections)

    def __post_init__(self) -> None:
        if wrong := wrong_values(self.flat):
            raise mistaken(f"landing {self.name!r}", wrong)

    @property
    def flat(self) -> dict[str, Any]:
        """Return all options by their recorded names, in their recorded order."""
        keys = {name: SECTION_KEYS.get(name) for name in CHECKS}
        return {
            name: getattr(self, name) if key is None else getattr(getattr(self, key[0]), key[1])
            for name, key in keys.items()
        }

    def changed(self, **options: Any) -> Landing:
        """Return the landing with other options; a section may be a mapping of the keys that change.

        :raises SpecError: as for a new landing
        """
        inner = {
            name: dataclasses.replace(getattr(self, name), **value)
            for name, value in options.items()
            if name in SECTIONS and isinstance(value, Mapping)
        }
        return dataclasses.replace(self, **{**options, **inner})

    @property
    def decoding(self) -> Format:
        """Return `format` with all its options."""
        return cast(Format, self.format)

    @property
    def topic_names(self) -> tuple[str, ...]:
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def branch(self) -> str:
        """Return the branch that windows land on."""
        return self.publish.branch or (AUDIT if self.publish.checks else MAIN)

    @property
    def checks(self) -> tuple[RowCheck, ...]:
        """Return what new rows must pass before ``main`` is moved to them."""
        return checks_of(self.publish.checks, self.table)

    @property
    def destinations(self) -> dict[str, Role]:
        """Return the tables for rows and rejects, the leading data table first."""
        dead = {self.dead_letter_table: Role.DEAD_LETTERS} if self.dead_letter_table else {}
        return dict.fromkeys(routed_tables(self.table, self.route), Role.ROWS) | dead

    @property
    def routing(self) -> Route | None:
        """Return the rule that selects a record's table, if there are several tables."""
        return route_of(self.route)

    @property
    def data_tables(self) -> tuple[str, ...]:
        """Return the tables that take rows, the leading one first."""
        return tables_for(self.destinations, Role.ROWS)

    def transform_of(self, table: str) -> str | None:
        """Return the SQL between records and the rows of a data table."""
        stated = self.transform.sql
        return stated.get(table) if isinstance(stated, Mapping) else stated

    @property
    def delete_values(self) -> Mapping[str, bool | str]:
        """Return the columns by whose values a row says that the source deleted its key."""
        return delete_values(self.transform.unwrap)

    @property
    def one_row_each(self) -> bool:
        """Return True if each record that is not rejected is exactly one row."""
        return self.format_options.one_row_each and self.transform.sql is None

    @property
    def record_columns(self) -> tuple[str, ...]:
        """Return the metadata columns that are filled in tables that have them."""
        if self.columns.metadata is not None:
            return METADATA_COLUMNS if self.columns.metadata else ()
        made = [c for c in map(self.create_of, self.data_tables) if c is not None]
        listed = {c.get("name") for create in made for c in create["schema"] if isinstance(c, Mapping)}
        filled = listed | {*columns_of_key(self.columns.key), *self.columns.headers}
        return MARK_COLUMNS if (made or self.upsert.key) and filled.isdisjoint(MARK_COLUMNS) else ()

    def create_of(self, table: str) -> Mapping[str, Any] | None:
        """Return how to make a missing data table."""
        return self.create if table == self.table or self.routing is None else self.routing.create.get(table)

    @property
    def tables(self) -> tuple[str, ...]:
        """Return all tables of the landing, the data table first."""
        return tuple(self.destinations)

    @property
    def control_topic_name(self) -> str:
        return self.connections.control_topic or DEFAULT_CONTROL_TOPIC

    @property
    def group_id(self) -> str:
        return group_id(self.name)

    @property
    def budget(self) -> Budget:
        return Budget(max_records=self.dead_letters.max_records, max_ratio=self.dead_letters.max_ratio)

    @property
    def format_options(self) -> FormatOptions:
        """Return the options of the landing's decoders."""
        return FormatOptions(
            format=self.decoding.name,
            timestamps=self.timestamps,
            encodings=self.decoding.encodings,
            unknown_fields=self.columns.unknown_fields,
            schema=str(self.decoding.schema),
            message=self.decoding.message,
            csv=self.decoding.csv,
            reader_schema=str(self.decoding.reader_schema),
        )

    @property
    def pending_budget(self) -> PendingBudget:
        return PendingBudget(
            open_cycles=self.backpressure.max_open_cycles,
            slices=self.backpressure.max_pending_slices,
            files=self.backpressure.max_pending_files,
            bytes=self.backpressure.max_pending_bytes,
        )

    @property
    def asset(self) -> Asset:
        """Return the Airflow asset of the data table without reading a connection; needs Airflow."""
        from airflow_provider_lakecommit.assets import asset_of

        return asset_of(self)

    @property
    def table_assets(self) -> Mapping[str, Asset]:
        """Return the asset of each table, if `route` names several; needs Airflow."""
        from airflow_provider_lakecommit.assets import table_assets_of

        return table_assets_of(self)

    @property
    def spec_version(self) -> str:
        """Return the hash of the options that change the rows; defaults are left out."""
        return spec_hash(self.flat, DEFAULTS, SHAPING)

    @property
    def shaping(self) -> dict[str, Any]:
        """Return the hashed options of the spec version as plain values."""
        return {key: value for key, value in self.to_flat().items() if key in SHAPING}

    @property
    def decoding_hash(self) -> str:
        """Return the hash of the options that decide if a record becomes rows or a reject."""
        return spec_hash(self.flat, DEFAULTS, DECODING)

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain values, as in YAML, without defaults; :meth:`from_dict` reads it back."""
        return from_flat(self.to_flat())

    def to_flat(self) -> dict[str, Any]:
        """Return the spec by recorded names, without defaults; :meth:`from_flat` reads it back."""
        return plain_values(self.flat, DEFAULTS)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Landing:
        """Parse plain values, as from YAML.

        :raises SpecError: unknown keys (with the nearest known one), missing keys, wrong values
        """
        return cls(**values)

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Landing:
        """Read what :meth:`to_flat` recorded.

        :raises SpecError: as :meth:`from_dict`
        """
        return cls(**from_flat(values))

    @classmethod
    def from_yaml(cls, path: str | Path) -> Landing:
        """Read the landing of a YAML spec; the sections in place of connections are optional."""
        return load_spec(path, connections=False).landing


_LEAST = {"name": "any", "topics": "any", "table": "any.table"}
DEFAULTS: Mapping[str, Any] = {name: v for name, v in Landing.from_dict(_LEAST).flat.items() if name not in _LEAST}
"""Default values, by the names under which options are recorded."""


@dataclass(frozen=True, kw_only=True)
class LandingSpec:
    """A YAML spec: a landing, sections in place of connections, and its secret variables."""

    landing: Landing
    kafka: Mapping[str, Any] = field(repr=False)
    catalog: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_spec(path: str | Path, *, connections: bool = True, elsewhere: Collection[str] = ()) -> LandingSpec:
    """Read a YAML spec.

    :param connections: require the sections that stand in for Airflow connections
    :param elsewhere: sections that the caller has from elsewhere
    :raises SpecError: unreadable file, no mapping, or anything :class:`Landing` refuses; all mistakes together
    """
    kinds = {f.name: str(f.type) for f in dataclasses.fields(Landing)}
    landing, taken = read_connected(path, kinds, Landing.from_dict, hint, connections=connections, elsewhere=elsewhere)
    return LandingSpec(landing=landing, **taken)
