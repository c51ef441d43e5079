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
import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.model import Budget, group_id
from airflow_provider_lakecommit.exceptions import SpecError

if TYPE_CHECKING:
    from airflow.sdk import Asset

__all__ = [
    "DEFAULT_CONTROL_TOPIC",
    "ENCODINGS",
    "METADATA_COLUMNS",
    "TIMESTAMP_RULES",
    "Landing",
    "LandingSpec",
    "load_spec",
]

DEFAULT_CONTROL_TOPIC = "control-lakecommit"
CONTROL_EVENTS = ("1.12", "1.10")
"""Forms of the control events, by the release of the Iceberg sink connector that writes them so."""
TIMESTAMP_RULES = (
    "iso8601",
    *("epoch_seconds", "epoch_millis", "epoch_micros", "epoch_nanos"),
    "epoch_days",
    *("seconds_of_day", "millis_of_day", "micros_of_day", "nanos_of_day"),
)
"""Named rules of ``timestamps``: ``epoch_days`` is for dates, ``…_of_day`` for times, the other ``epoch_…`` for
timestamps; anything else that holds a ``%`` is a strptime pattern.
"""
ENCODINGS = ("base64", "base64url", "hex", "utf8")
"""How bytes may be written as text, the values of ``encodings``."""
METADATA_COLUMNS = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key")
"""Columns filled from the record itself under ``metadata_columns`` (string, int, long, timestamptz, binary)."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")


@dataclass(frozen=True, kw_only=True)
class Landing:
    """One pipeline, topics to table.

    :param name: unique name; part of the control group id and of every identity
    :param topics: a topic or several, all with the same kind of record
    :param table: ``namespace.table`` that the rows are appended to
    :param format: encoding of the record values; ``json`` (one object per record)
    :param timestamps: how a timestamp, date or time is written in the records, per column path (``a.b`` for nested
        ones, ``.element``, ``.key`` and ``.value`` within lists and maps): ``iso8601`` (default), ``epoch_seconds``,
        ``epoch_millis``, ``epoch_micros``, ``epoch_nanos``, for dates ``epoch_days``, for times ``seconds_of_day``,
        ``millis_of_day``, ``micros_of_day``, ``nanos_of_day``, or a strptime pattern
    :param encodings: how the bytes of a binary or fixed column are written in the records, per column path:
        ``base64``, ``base64url``, ``hex`` or ``utf8``; each such column needs one
    :param start: where a topic that was never landed begins: ``earliest`` or ``latest``
    :param unknown_fields: what happens to fields that the table lacks: ``ignore`` (counted) or ``dead_letter``
    :param dead_letter_table: table for rejected records, made if missing; without it a rejected record blocks its range
    :param dead_letter_max_records: rejected records that a slice may have
    :param dead_letter_max_ratio: share of rejected records that a slice may have, judged from ``1 / ratio`` rejected
        records on
    :param metadata_columns: fill the columns of :data:`METADATA_COLUMNS`
    :param create: how to make the table if it is missing: ``schema``, ``partition_by``, ``properties``
    :param groups: number of partition groups, that is of mapped write tasks (default 1)
    :param max_records: most source records per window; the default lands all there is
    :param max_bytes: most estimated bytes per window
    :param slice_records: most records per slice, the unit that is never read again
    :param branch: branch that is written to; one other than ``main`` must exist
    :param on_spec_change: ``finish`` publishes slices written under an older spec, ``void`` reads them again
    :param completion_timeout: how long a cycle may claim ranges that it has not finished
    :param commit_files: most files of one snapshot; what is pending is published in chunks of so many, oldest first
    :param stalled_cycles: cycles in a row whose commits failed for all tables; then no window is planned until one
        commit completes
    :param slow_down: plan smaller and rarer windows as soon as a commit has failed
    :param max_open_cycles: windows that may be under way at once; no limit if it is ``None``, as for the next three
    :param max_pending_slices: slices per table that may be under way or wait to be published; then no window is
        planned until some are
    :param max_pending_files: the same in data files; those of a slice that is under way are estimated
    :param max_pending_bytes: the same in bytes of source records
    :param kafka_config_id: Airflow connection of the brokers
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
    timestamps: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    start: str = "earliest"
    unknown_fields: str = "ignore"
    dead_letter_table: str | None = None
    dead_letter_max_records: int = 1000
    dead_letter_max_ratio: float = 0.01
    metadata_columns: bool = False
    create: Mapping[str, Any] | None = None
    groups: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    slice_records: int = 250_000
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
    kafka_config_id: str = "kafka_default"
    iceberg_conn_id: str = "iceberg_default"
    control_topic: str | None = None
    control_events: str = "1.12"

    def __post_init__(self) -> None:
        if not isinstance(self.topics, str) and isinstance(self.topics, Sequence):
            object.__setattr__(self, "topics", tuple(self.topics))
        wrong = [f"{key}: {text}" for key, check in _CHECKS.items() if (text := check(getattr(self, key)))]
        if not wrong and self.dead_letter_table == self.table:
            wrong.append("dead_letter_table: must be another table than `table`")
        if wrong:
            raise SpecError(f"landing {self.name!r}: " + "; ".join(wrong))

    @property
    def topic_names(self) -> tuple[str, ...]:
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables of the landing, the data table first."""
        return (self.table,) if self.dead_letter_table is None else (self.table, self.dead_letter_table)

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
    def spec_version(self) -> str:
        """Hash of what changes the rows; fields at their default are left out."""
        shaping = (
            *("table", "format", "timestamps", "encodings"),
            *("unknown_fields", "dead_letter_table", "metadata_columns"),
        )
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        values = {k: getattr(self, k) for k in shaping}
        told = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items() if v and v != defaults[k]}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain values, defaults left out; :meth:`from_dict` reads it back."""
        out: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            if value != default:
                plain = (
                    list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
                )
                out[f.name] = plain.total_seconds() if isinstance(plain, timedelta) else plain
        return out

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Landing:
        """Parse plain values, as from YAML.

        :raises SpecError: unknown keys (with the nearest known one), missing keys, wrong values
        """
        known = {f.name: f for f in dataclasses.fields(cls)}
        name = values.get("name")
        wrong = [f"unknown key {k!r}{_nearest(k, known)}" for k in values if k not in known]
        required = (n for n, f in known.items() if f.default is f.default_factory is dataclasses.MISSING)
        wrong += [f"missing key {n!r}" for n in required if n not in values]
        if wrong:
            raise SpecError(f"landing {name!r}: " + "; ".join(wrong))
        timeout = values.get("completion_timeout")
        if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
            with suppress(ValueError, OverflowError):  # what is no duration is refused with all else that is wrong
                values = {**values, "completion_timeout": timedelta(seconds=timeout)}
        return cls(**values)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Landing:
        """The landing of a YAML spec; the sections that stand in for connections may be there and are not needed."""
        return load_spec(path, connections=False).landing


@dataclass(frozen=True, kw_only=True)
class LandingSpec:
    """A YAML spec: a landing, and three sections in place of Airflow connections."""

    landing: Landing
    kafka: Mapping[str, Any]
    catalog: Mapping[str, Any]
    spark: Mapping[str, Any]


_SECTIONS = ("kafka", "catalog", "spark")


def load_spec(path: str | Path, *, connections: bool = True) -> LandingSpec:
    """Read a YAML spec.

    :param connections: are the sections that stand in for Airflow connections needed?

    :raises SpecError: unreadable file, no mapping, or anything :class:`Landing` refuses
    """
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise SpecError(f"cannot read spec {path}: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise SpecError(f"spec {path} is not YAML: {e}") from e
    if not isinstance(values, dict) or not all(isinstance(k, str) for k in values):
        raise SpecError(f"spec {path}: a mapping of keys to values is needed, found {type(values).__name__}")
    sections = {s: values.pop(s, None) or {} for s in _SECTIONS}
    wrong = [f"section {s!r} must be a mapping" for s, v in sections.items() if not isinstance(v, dict)]
    if connections and "bootstrap.servers" not in sections["kafka"]:
        wrong.append("section 'kafka' lacks 'bootstrap.servers'")
    if wrong:
        raise SpecError(f"spec {path}: " + "; ".join(wrong))
    unknown = [
        f"unknown key {k!r}{_nearest(k, [f.name for f in dataclasses.fields(Landing)] + list(_SECTIONS))}"
        for k in values
        if k not in {f.name for f in dataclasses.fields(Landing)}
    ]
    if unknown:
        raise SpecError(f"spec {path}: " + "; ".join(unknown))
    return LandingSpec(landing=Landing.from_dict(values), **sections)


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


Check = Callable[[Any], str | None]


def _matches(pattern: re.Pattern[str], what: str) -> Check:
    return lambda v: None if isinstance(v, str) and pattern.fullmatch(v) else f"{v!r} is not {what}"


def _one_of(*allowed: str) -> Check:
    return lambda v: None if v in allowed else f"{v!r} is not one of {', '.join(allowed)}"


def _integer(minimum: int, optional: bool = False) -> Check:
    def check(v: Any) -> str | None:
        if optional and v is None:
            return None
        good = isinstance(v, int) and not isinstance(v, bool) and v >= minimum
        return None if good else f"{v!r} is not a whole number of at least {minimum}"

    return check


def _topics(v: Any) -> str | None:
    names = (v,) if isinstance(v, str) else v
    if not isinstance(names, tuple) or not names or len(set(names)) != len(names):
        return f"{v!r} is not a topic name or a list of different topic names"
    return next(
        (f"{n!r} is not a topic name" for n in names if not isinstance(n, str) or not _TOPIC.fullmatch(n)), None
    )


def _timestamps(v: Any) -> str | None:
    if not isinstance(v, Mapping):
        return f"{v!r} is not a mapping of column paths to rules"
    if not all(isinstance(c, str) for c in v):
        return f"{v!r} is not a mapping of column paths to rules"
    bad = [f"{c}: {r!r}" for c, r in v.items() if not (isinstance(r, str) and (r in TIMESTAMP_RULES or "%" in r))]
    return f"{', '.join(bad)}: allowed are {', '.join(TIMESTAMP_RULES)} or a strptime pattern" if bad else None


def _encodings(v: Any) -> str | None:
    if not isinstance(v, Mapping) or not all(isinstance(c, str) for c in v):
        return f"{v!r} is not a mapping of column paths to encodings"
    bad = [f"{c}: {e!r}" for c, e in v.items() if e not in ENCODINGS]
    return f"{', '.join(bad)}: allowed are {', '.join(ENCODINGS)}" if bad else None


def _create(v: Any) -> str | None:
    if v is None:
        return None
    if not isinstance(v, Mapping) or not isinstance(v.get("schema"), list) or not v["schema"]:
        return "needs `schema`, a list of {name, type, required}"
    unknown = set(v) - {"schema", "partition_by", "properties"}
    return f"unknown key {sorted(unknown)[0]!r}; allowed are schema, partition_by, properties" if unknown else None


def _ratio(v: Any) -> str | None:
    good = isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v <= 1
    return None if good else f"{v!r} is not a number between 0 and 1"


def _optional(check: Check) -> Check:
    return lambda v: None if v is None else check(v)


def _boolean(v: Any) -> str | None:
    return None if isinstance(v, bool) else f"{v!r} is not true or false"


def _duration(v: Any) -> str | None:
    return None if isinstance(v, timedelta) and v > timedelta(0) else f"{v!r} is not a positive duration (seconds)"


def _text(v: Any) -> str | None:
    return None if isinstance(v, str) and v else f"{v!r} is not a name"


_CHECKS: dict[str, Check] = {
    "name": _matches(_NAME, "a name (letters, digits, '.', '_', '-', at most 100)"),
    "topics": _topics,
    "table": _matches(_TABLE, "a table name (namespace.table)"),
    "format": _one_of("json"),
    "timestamps": _timestamps,
    "encodings": _encodings,
    "start": _one_of("earliest", "latest"),
    "unknown_fields": _one_of("ignore", "dead_letter"),
    "dead_letter_table": _optional(_matches(_TABLE, "a table name (namespace.table)")),
    "dead_letter_max_records": _integer(0),
    "dead_letter_max_ratio": _ratio,
    "metadata_columns": _boolean,
    "create": _create,
    "groups": _integer(1, optional=True),
    "max_records": _integer(1, optional=True),
    "max_bytes": _integer(1, optional=True),
    "slice_records": _integer(1),
    "branch": _text,
    "on_spec_change": _one_of("finish", "void"),
    "completion_timeout": _duration,
    "commit_files": _integer(1),
    "stalled_cycles": _integer(1),
    "slow_down": _boolean,
    "max_open_cycles": _integer(1, optional=True),
    "max_pending_slices": _integer(1, optional=True),
    "max_pending_files": _integer(1, optional=True),
    "max_pending_bytes": _integer(1, optional=True),
    "kafka_config_id": _text,
    "iceberg_conn_id": _text,
    "control_topic": _optional(_matches(_TOPIC, "a topic name")),
    "control_events": lambda v: None if v in CONTROL_EVENTS else f"{v!r} is not '1.12' or '1.10', as a text in quotes",
}
