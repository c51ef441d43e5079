# SPDX-License-Identifier: Apache-2.0
"""The sections of a landing: rarely changed options, in small frozen objects.

Contract: pure, and the same in Python and in YAML. A section does not check its values; the
:class:`~airflow_provider_lakecommit.landing.Landing` checks all its options together. An unknown key is refused by
:mod:`~airflow_provider_lakecommit.landing.options`, which knows all sections.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_lakecommit.landing.times import duration_of

FLAT = "flat"
"""Key of the name under which an option is recorded, if that is not the name of its field."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """The encoding of record values; a landing may state the ``name`` alone, as ``format: avro``.

    :param name: ``json`` (one object per record), ``json_schema`` (the same, after the id of its schema in a registry),
        ``avro`` and ``protobuf`` (also after such an id, unless there is a ``schema``), ``csv``, or ``raw`` (bytes as
        they are, into the one column that nothing else fills)
    :param schema: the schema of records that name none: for Avro a mapping or JSON text, for Protobuf the text of a
        ``.proto`` file or a serialized descriptor set in base64. In YAML also the path of an ``.avsc`` or ``.proto``
        file
    :param reader_schema: for Avro, the schema to read records with, as a mapping or JSON text: its aliases are older
        names of columns, its defaults fill columns that a record's schema lacks
    :param message: full name of the Protobuf message; by default the one that the record names, or the first of
        ``schema``
    :param csv: for format ``csv``: ``columns``, the names of a record's fields in order; ``delimiter`` (``,``),
        ``quote`` (``"``), ``null_text``, which is null if unquoted (the empty text), and ``rows``: ``one`` or ``many``
        per record
    :param encodings: how the bytes of a binary or fixed column are written, per column path: ``base64``, ``base64url``,
        ``hex`` or ``utf8``; each such column needs one
    """

    name: str = field(default="json", metadata={FLAT: "format"})
    schema: str | Mapping[str, Any] = ""
    reader_schema: str | Mapping[str, Any] = ""
    message: str = ""
    csv: Mapping[str, Any] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("schema", "reader_schema"):
            object.__setattr__(self, key, _schema_text(getattr(self, key)))


def _schema_text(stated: Any) -> Any:
    """Return a schema as text: JSON without insignificant parts, other texts unchanged."""
    try:
        return (
            json.dumps(json.loads(stated) if isinstance(stated, str) else stated, sort_keys=True) if stated else stated
        )
    except (TypeError, ValueError):
        return stated


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The step between a record and its rows.

    :param sql: SQL over one record, ``select … from record where …``; it names its columns like the table's. With
        `route` a mapping of tables to SQL
    :param record_schema: the columns of ``record``, a list as in ``create.schema``; the rules of `timestamps`,
        ``format.encodings`` and ``columns.unknown_fields`` then apply to them
    :param functions: further functions of the SQL by name, each as ``module.function``, with annotated types
    :param unwrap: ``debezium``: values are change envelopes, and the row is ``after``, or ``before`` for a delete; or a
        mapping with ``envelope: debezium`` and ``columns``, which maps columns to paths in the envelope
    """

    sql: str | Mapping[str, str] | None = field(default=None, metadata={FLAT: "transform"})
    record_schema: Sequence[Mapping[str, Any]] | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    unwrap: str | Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns that are not fields of the value, and fields without a column.

    :param key: columns filled from the record key: ``column`` with the whole key, or ``columns`` with its fields (a
        list, or a mapping of columns to fields); ``format`` (``string``, ``raw``, ``json``), ``invalid``: ``reject``
        the record, or ``ignore`` the key
    :param headers: columns filled from headers, each with the header's name, or with ``name``, ``format``, ``repeated``
        (take the ``last`` or ``first``) and ``invalid``
    :param metadata: ``true``: fill the columns of :data:`METADATA_COLUMNS` from the record itself; ``false``: none of
        them. By default, tables that the landing makes get :data:`MARK_COLUMNS`, which replaying and deleting ranges
        need
    :param unknown_fields: fields that the table lacks: ``ignore`` (counted) or ``dead_letter``
    :param on_incompatible: sampled records that no change by `evolve` makes fit: ``dead_letter`` rejects them like any
        others, ``stop`` plans no window with them
    """

    key: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    metadata: bool | None = field(default=None, metadata={FLAT: "metadata_columns"})
    unknown_fields: str = "ignore"
    on_incompatible: str = "dead_letter"


def keep_as_tuples(declared: object, *names: str) -> None:
    """Make lists in these fields of a frozen object tuples; other values stay, for the checks to name them."""
    for name in names:
        stated = getattr(declared, name)
        if isinstance(stated, Sequence) and not isinstance(stated, str):
            object.__setattr__(declared, name, tuple(stated))


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Keep one row per key: the newest state of the source instead of all its changes.

    :param key: columns that identify a row; without them the landing appends
    :param order_by: which change of a key is the newest: ``offset``, or a column followed by ``offset``, as in
        ``[_lsn, offset]``
    :param deletes: what a delete in the source does: ``hard`` removes the row, ``soft`` sets the column
        ``_is_deleted``, ``ignore`` keeps the row
    """

    key: Sequence[str] = field(default=(), metadata={FLAT: "upsert_key"})
    order_by: str | Sequence[str] = field(default="offset", metadata={FLAT: "upsert_order_by"})
    deletes: str = field(default="hard", metadata={FLAT: "upsert_deletes"})

    def __post_init__(self) -> None:
        keep_as_tuples(self, "key", "order_by")

    @property
    def order_column(self) -> str | None:
        """Return the column that orders the changes of a key, before their offsets."""
        return None if isinstance(self.order_by, str) else self.order_by[0]

    @property
    def leaves_no_trace(self) -> bool:
        """Return True if deletes leave no trace in the table, so that older changes could bring rows back."""
        return bool(self.key) and self.deletes == "hard"

    @property
    def keeps_deletes(self) -> bool:
        """Return True if a delete in the source is a row."""
        return self.deletes == "soft"

    @property
    def ignores_deletes(self) -> bool:
        """Return True if a delete in the source does nothing."""
        return self.deletes == "ignore"


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The budget of rejected records; `dead_letter_table` names their table.

    :param max_records: most rejected records of a slice; a slice that has more is not read to its end
    :param max_ratio: largest share of rejected records of a window, evaluated from ``1 / ratio`` rejected records on,
        or from 5 if all are rejected; a warning reports the share from 1 % on
    """

    max_records: int = field(default=100_000, metadata={FLAT: "dead_letter_max_records"})
    max_ratio: float = field(default=0.05, metadata={FLAT: "dead_letter_max_ratio"})


@dataclass(frozen=True, kw_only=True)
class Window:
    """The size of a window, its division, and its time limits.

    :param start: where a topic begins on its first run: ``earliest`` or ``latest``
    :param groups: number of partition groups, which is the number of mapped write tasks (default 1)
    :param group_by: ``partition``: a group has the partitions of one number modulo ``groups``; ``load``: slices are
        distributed evenly, also those of one partition
    :param max_records: most source records per window; by default all available ones
    :param max_bytes: most estimated bytes per window; refused if a record has more on average
    :param slice_records: most records per slice, the unit that is read only once; with ``target_file_size`` only a
        value other than the default counts
    :param target: how long a window should take, written like ``completion_timeout``; its records, slices and groups
        are derived from the newest windows
    :param target_file_size: bytes that a file of the data table should have; sets the number of records per slice
    :param replicas: number of concurrent attempts at each slice, in separate jobs; the first report wins
    :param speculation: repeat the rest of a group that reported nothing for this multiple of the duration of the
        window's median slice, and for 10 seconds; not with ``replicas``
    :param completion_timeout: how long a cycle may claim ranges that it has not finished: a timedelta, seconds, or a
        text like ``1h30m``
    :param on_spec_change: ``finish`` publishes slices written under an older spec, ``void`` reads them again
    """

    start: str = "earliest"
    groups: int | None = None
    group_by: str = "partition"
    max_records: int | None = None
    max_bytes: int | None = None
    slice_records: int = 250_000
    target: timedelta | None = field(default=None, metadata={FLAT: "target_window"})
    target_file_size: int | None = None
    replicas: int = 1
    speculation: float | None = None
    completion_timeout: timedelta = timedelta(hours=1)
    on_spec_change: str = "finish"

    def __post_init__(self) -> None:
        for key in ("target", "completion_timeout"):
            object.__setattr__(self, key, duration_of(getattr(self, key)))


@dataclass(frozen=True, kw_only=True)
class Backpressure:
    """When to plan less because commits fail or slices wait to be published.

    :param slow_down: plan smaller and rarer windows as soon as a commit has failed
    :param stalled_cycles: stop planning after this many cycles in a row whose commits failed for all tables, until one
        commit completes
    :param commit_files: most files per snapshot; pending files are published in chunks of this size, oldest first
    :param max_open_cycles: most concurrent windows; ``None`` means no limit, as for the next three
    :param max_pending_slices: stop planning while a table has this many slices in progress or waiting to be published
    :param max_pending_files: the same in data files; files of slices in progress are estimated
    :param max_pending_bytes: the same in bytes of source records
    """

    slow_down: bool = False
    stalled_cycles: int = 3
    commit_files: int = 10_000
    max_open_cycles: int | None = 16
    max_pending_slices: int | None = 8_000
    max_pending_files: int | None = 100_000
    max_pending_bytes: int | None = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Maintain:
    """When runs compact the tables, and when a table needs compaction so much that nothing is planned.

    Data files that are needed by size and partitions do not count. At a limit, `status` warns; at twice a limit the
    plan is deferred until a compaction, in tables that ``compact`` applies to.

    :param compact: runs compact small files between their windows: ``true`` in all tables, ``false`` in none; by
        default in the tables that the landing made
    :param max_files: limit of data files beyond those needed
    :param max_dead: limit of the share of deleted rows
    :param max_snapshots: limit of snapshots since the last compaction
    """

    compact: bool | None = field(default=None, metadata={FLAT: "compact"})
    max_files: int = field(default=500, metadata={FLAT: "max_debt_files"})
    max_dead: float = field(default=0.1, metadata={FLAT: "max_debt_dead"})
    max_snapshots: int = field(default=200, metadata={FLAT: "max_debt_snapshots"})


@dataclass(frozen=True, kw_only=True)
class Publish:
    """The branch that windows land on, and the checks that they pass before they are published on ``main``.

    :param branch: branch to write to. With ``checks`` it is made if it is missing, and is ``audit`` by default; without
        them it is ``main`` by default, any other must exist, and nothing is published from it
    :param checks: what the new rows must pass before ``main`` is moved to them, each as SQL that returns the rows that
        are wrong, as the ``module.function`` of a Python function, or as a mapping of ``name``, ``sql`` or
        ``function``, and ``table``
    """

    branch: str | None = None
    checks: Sequence[str | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        keep_as_tuples(self, "checks")


@dataclass(frozen=True, kw_only=True)
class Connections:
    """Airflow connections of the landing, and its control topic.

    :param kafka: Airflow connection of the brokers
    :param registry: Airflow connection of the schema registry, for formats that have one
    :param iceberg: Airflow connection of the catalog
    :param control_topic: topic of the commit protocol
    :param control_events: form of the events on that topic: ``1.12``, or ``1.10`` (as a text, in quotes) if
        Iceberg sink connectors up to 1.10 share the topic; both are read
    :param location_providers: classes that a table may name in ``write.py-location-provider.impl``, as
        ``module.Class``; pyiceberg's own are always allowed. They are imported where files are written, next to
        credentials
    """

    kafka: str = field(default="kafka_default", metadata={FLAT: "kafka_config_id"})
    registry: str | None = field(default=None, metadata={FLAT: "registry_conn_id"})
    iceberg: str = field(default="iceberg_default", metadata={FLAT: "iceberg_conn_id"})
    control_topic: str | None = None
    control_events: str = "1.12"
    location_providers: Sequence[str] = ()

    def __post_init__(self) -> None:
        keep_as_tuples(self, "location_providers")
