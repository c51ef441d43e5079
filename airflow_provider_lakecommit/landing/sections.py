# SPDX-License-Identifier: Apache-2.0
"""The sections of a landing: rarely changed options, in small frozen objects.

Contract: pure, and the same in Python and in YAML. A section does not check its values; the
:class:`~airflow_provider_lakecommit.landing.Landing` checks all its options together. Everything recorded or sent
    (jobs, bundles, XCom, hashes) has each option under one flat name, which stays when the option moves:
    :data:`SECTION_KEYS` maps that name to the section and the key. :func:`to_flat` and :func:`from_flat` convert.

Failure story: an unknown key is reported with the nearest known one, a key of another section with its place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

from airflow_provider_lakecommit.landing.names import mistaken, nearest
from airflow_provider_lakecommit.landing.times import duration_of

T = TypeVar("T")
_FLAT = "flat"


def _refuses_unknown_keys(section: type[T]) -> type[T]:
    """Class decorator: an unknown argument is a :class:`SpecError` with the option's place, not a ``TypeError``."""
    make: Callable[..., None] = section.__init__

    @wraps(make)
    def checked(self: T, /, **values: Any) -> None:
        name = next(name for name, kind in SECTIONS.items() if kind is type(self))
        if wrong := _unknown(name, values):
            raise mistaken("landing", wrong)
        make(self, **values)

    section.__init__ = checked  # type: ignore[assignment]
    return section


@_refuses_unknown_keys
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

    name: str = field(default="json", metadata={_FLAT: "format"})
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


@_refuses_unknown_keys
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

    sql: str | Mapping[str, str] | None = field(default=None, metadata={_FLAT: "transform"})
    record_schema: Sequence[Mapping[str, Any]] | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    unwrap: str | Mapping[str, Any] | None = None


@_refuses_unknown_keys
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
    metadata: bool | None = field(default=None, metadata={_FLAT: "metadata_columns"})
    unknown_fields: str = "ignore"
    on_incompatible: str = "dead_letter"


def keep_as_tuples(declared: object, *names: str) -> None:
    """Make lists in these fields of a frozen object tuples; other values stay, for the checks to name them."""
    for name in names:
        stated = getattr(declared, name)
        if isinstance(stated, Sequence) and not isinstance(stated, str):
            object.__setattr__(declared, name, tuple(stated))


@_refuses_unknown_keys
@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Keep one row per key: the newest state of the source instead of all its changes.

    :param key: columns that identify a row; without them the landing appends
    :param order_by: which change of a key is the newest: ``offset``, or a column followed by ``offset``, as in
        ``[_lsn, offset]``
    :param deletes: what a delete in the source does: ``hard`` removes the row, ``soft`` sets the column
        ``_is_deleted``, ``ignore`` keeps the row
    """

    key: Sequence[str] = field(default=(), metadata={_FLAT: "upsert_key"})
    order_by: str | Sequence[str] = field(default="offset", metadata={_FLAT: "upsert_order_by"})
    deletes: str = field(default="hard", metadata={_FLAT: "upsert_deletes"})

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


@_refuses_unknown_keys
@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The budget of rejected records; `dead_letter_table` names their table.

    :param max_records: most rejected records of a slice; a slice that has more is not read to its end
    :param max_ratio: largest share of rejected records of a window, evaluated from ``1 / ratio`` rejected records on,
        or from 5 if all are rejected; a warning reports the share from 1 % on
    """

    max_records: int = field(default=100_000, metadata={_FLAT: "dead_letter_max_records"})
    max_ratio: float = field(default=0.05, metadata={_FLAT: "dead_letter_max_ratio"})


@_refuses_unknown_keys
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
    target: timedelta | None = field(default=None, metadata={_FLAT: "target_window"})
    target_file_size: int | None = None
    replicas: int = 1
    speculation: float | None = None
    completion_timeout: timedelta = timedelta(hours=1)
    on_spec_change: str = "finish"

    def __post_init__(self) -> None:
        for key in ("target", "completion_timeout"):
            object.__setattr__(self, key, duration_of(getattr(self, key)))


@_refuses_unknown_keys
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


@_refuses_unknown_keys
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

    compact: bool | None = field(default=None, metadata={_FLAT: "compact"})
    max_files: int = field(default=500, metadata={_FLAT: "max_debt_files"})
    max_dead: float = field(default=0.1, metadata={_FLAT: "max_debt_dead"})
    max_snapshots: int = field(default=200, metadata={_FLAT: "max_debt_snapshots"})


@_refuses_unknown_keys
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


@_refuses_unknown_keys
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

    kafka: str = field(default="kafka_default", metadata={_FLAT: "kafka_config_id"})
    registry: str | None = field(default=None, metadata={_FLAT: "registry_conn_id"})
    iceberg: str = field(default="iceberg_default", metadata={_FLAT: "iceberg_conn_id"})
    control_topic: str | None = None
    control_events: str = "1.12"
    location_providers: Sequence[str] = ()

    def __post_init__(self) -> None:
        keep_as_tuples(self, "location_providers")


SECTIONS: Mapping[str, type[Any]] = {
    "format": Format,
    "transform": Transform,
    "columns": Columns,
    "upsert": Upsert,
    "dead_letters": DeadLetters,
    "window": Window,
    "backpressure": Backpressure,
    "maintain": Maintain,
    "publish": Publish,
    "connections": Connections,
}
"""The sections by the name of their field."""
ALONE: Mapping[str, str] = {"format": "name"}
"""Sections that may be stated as the text of this key alone."""
_KEYS = {name: tuple(f.name for f in dataclasses.fields(kind)) for name, kind in SECTIONS.items()}
SECTION_KEYS: Mapping[str, tuple[str, str]] = {
    f.metadata.get(_FLAT, f.name): (name, f.name) for name, kind in SECTIONS.items() for f in dataclasses.fields(kind)
}
"""Where each option of a section is, by the name under which it is recorded."""
_FLAT_NAMES = {path: name for name, path in SECTION_KEYS.items()}
TOP = (
    *("name", "topics", "table", "timestamps"),
    *("evolve", "create", "route", "dead_letter_table"),
)
"""Options of a landing that are in no section."""
_BY_KEY = {key: (section, key) for section, key in reversed([*SECTION_KEYS.values()])}


def label(name: str) -> str:
    """An option as messages name it, by the name under which it is recorded: ``window.groups``."""
    section, *key = SECTION_KEYS.get(name, (name,))
    return section if key == [ALONE.get(section)] else ".".join((section, *key))


def hint(key: str, known: Iterable[str], section: str = "") -> str:
    """The end of a message about an unknown key: its place, or the nearest known key; empty where none is like it.

    :param known: the keys that are allowed where it was found
    :param section: the section where it was found
    """
    if key not in ALONE and (path := SECTION_KEYS.get(key) or _BY_KEY.get(key)) is not None:
        return f" (it is `{_place(*path)}`)"
    if section and (key in TOP or key in SECTIONS):
        return f" (it is `{key}`, outside of `{section}`)"
    found = nearest(key, {*known, *SECTION_KEYS, *_BY_KEY}, 1, 0.6)
    if not found:
        return ""
    meant = repr(found[0]) if found[0] in known else f"`{_place(*(SECTION_KEYS.get(found[0]) or _BY_KEY[found[0]]))}`"
    return f" (did you mean {meant}?)"


def _place(section: str, key: str) -> str:
    return f"{section}: {{{ALONE[section]}: …, {key}: …}}" if section in ALONE else f"{section}: {key}"


def section_of(name: str, value: Any) -> tuple[Any, list[str]]:
    """The section that a value states, and what is wrong with it: the section as it is, a mapping of some of its keys,
    or ``None``.
    """
    kind = SECTIONS[name]
    if isinstance(value, kind) or value is None:
        return kind() if value is None else value, []
    if name in ALONE and isinstance(value, str):
        return kind(**{ALONE[name]: value}), []
    if not isinstance(value, Mapping):
        return kind(), [f"{name}: {value!r} is not a mapping of {', '.join(_KEYS[name])}{_own_name(name)} [LC1149]"]
    return kind(**{key: each for key, each in value.items() if key in _KEYS[name]}), _unknown(name, value)


def _unknown(section: str, values: Iterable[Any]) -> list[str]:
    known = _KEYS[section]
    return [
        f"{section}: unknown key {key!r}{hint(str(key), known, section) or _own_name(section)} [LC1150]"
        for key in values
        if key not in known
    ]


def _own_name(section: str) -> str:
    """Where an option is that has the name of a section."""
    return f" (the value of the option is `{': '.join(SECTION_KEYS[section])}`)" if section in SECTION_KEYS else ""


def to_flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names under which they are recorded, from options in sections."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECTIONS and _is_section(name, value):
            out |= {_FLAT_NAMES.get((name, key), f"{name}.{key}"): each for key, each in _items(name, value)}
        else:
            out[name] = value
    return out


def from_flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options in sections, from options by the names under which they are recorded."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECTION_KEYS:
            section, key = SECTION_KEYS[name]
            out.setdefault(section, {})[key] = value
        else:
            out[name] = value
    for name, key in ALONE.items():
        if isinstance(stated := out.get(name), dict) and stated.keys() == {key}:
            out[name] = stated[key]
    return out


def merged(*options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a landing from several mappings, a later one first; of a section each key by itself."""
    out: dict[str, Any] = {}
    for each in options:
        for name, value in each.items():
            if name in SECTIONS and _is_section(name, value) and _is_section(name, out.get(name)):
                out[name] = dict([*_items(name, out.get(name)), *_items(name, value)])
            else:
                out[name] = value
    return out


def _is_section(name: str, value: Any) -> bool:
    return value is None or isinstance(value, Mapping | SECTIONS[name]) or (name in ALONE and isinstance(value, str))


def _items(name: str, section: Any) -> list[tuple[str, Any]]:
    """The stated keys of a section; of one that is an object those that differ from their default."""
    if section is None:
        return []
    if isinstance(section, str):
        return [(ALONE[name], section)]
    if isinstance(section, Mapping):
        return [*section.items()]
    default = type(section)()
    return [
        (f.name, v) for f in dataclasses.fields(section) if (v := getattr(section, f.name)) != getattr(default, f.name)
    ]
