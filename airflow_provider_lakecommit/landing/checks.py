# SPDX-License-Identifier: Apache-2.0
"""The allowed values of each option of a landing.

Contract: pure. :data:`CHECKS` has one check per option of a :class:`~airflow_provider_lakecommit.landing.Landing`, by
the option's recorded name. A check takes a value of any type, and returns what is wrong and what is allowed, or
``None``.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

from airflow_provider_lakecommit.core import FORMATS, SCHEMA_SOURCES, WITH_REGISTRY
from airflow_provider_lakecommit.landing.names import WITH_MODULE, meant, mistaken, unquoted
from airflow_provider_lakecommit.landing.options import SECTIONS, hint, label, section_of, to_flat
from airflow_provider_lakecommit.landing.route import TABLE_NAME, check_route, routed_tables, wrong_with_route
from airflow_provider_lakecommit.landing.row_checks import check_row_checks, wrong_with_row_checks
from airflow_provider_lakecommit.landing.table import wrong_with_table
from airflow_provider_lakecommit.landing.times import EXAMPLES
from airflow_provider_lakecommit.landing.transform_checks import (
    check_functions,
    check_record_schema,
    check_transform,
    check_unwrap,
    wrong_with_transform,
    wrong_with_unwrap,
)
from airflow_provider_lakecommit.landing.upsert import HARD, IGNORE, SOFT, check_key, check_order, wrong_with_upsert
from airflow_provider_lakecommit.landing.value_sections import csv_section, headers_section, key_section, wrong_together

CONTROL_EVENTS = ("1.12", "1.10")
"""Forms of the control events, by the release of the Iceberg sink connector that writes them."""
TIMESTAMP_RULES = (
    "iso8601",
    *("epoch_seconds", "epoch_millis", "epoch_micros", "epoch_nanos"),
    "epoch_days",
    *("seconds_of_day", "millis_of_day", "micros_of_day", "nanos_of_day"),
)
"""Named rules of ``timestamps``: ``epoch_days`` is for dates, ``…_of_day`` for times, the other ``epoch_…`` for
timestamps. Any other text with a ``%`` is a strptime pattern.
"""
METADATA_TYPES = {
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_generation": "long",
    "kafka_offset": "long",
    "kafka_timestamp": "timestamptz",
    "kafka_key": "binary",
}
"""Columns filled from the record itself under ``columns.metadata``, and their types."""
ENCODINGS = ("base64", "base64url", "hex", "utf8")
"""How bytes may be written as text: the values of ``format.encodings``."""

MOST_REPLICAS = 8
"""More replicas would only compete for processors; each has its own transactional ids."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_UNIT = re.compile("(milli|micro|nano)second")

Check = Callable[[Any], str | None]
T = TypeVar("T")


def _is(good: Callable[[Any], bool], what: str) -> Check:
    return lambda v: None if good(v) else f"{v!r} is not {what}"


def _optional(check: Check) -> Check:
    return lambda v: None if v is None else check(v)


def _matches(pattern: re.Pattern[str], what: str) -> Check:
    return _is(lambda v: isinstance(v, str) and pattern.fullmatch(v) is not None, f"{what} [LC1101]")


def _one_of(*allowed: str) -> Check:
    return _is(lambda v: v in allowed, f"one of {', '.join(allowed)} [LC1102]")


def _integer(minimum: int) -> Check:
    return _is(lambda v: _whole(v) and v >= minimum, f"a whole number of at least {minimum} [LC1103]")


def _whole(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _number(v: Any) -> bool:
    return isinstance(v, int | float) and not isinstance(v, bool)


def _topics(v: Any) -> str | None:
    names = (v,) if isinstance(v, str) else v
    if not isinstance(names, tuple) or not names or len(set(names)) != len(names):
        return f"{v!r} is not a topic name or a list of different topic names [LC1104]"
    return next(
        (
            f"{n!r} is not a topic name{_pattern(n)} [LC1105]"
            for n in names
            if not isinstance(n, str) or not _TOPIC.fullmatch(n)
        ),
        None,
    )


def _pattern(name: Any) -> str:
    if isinstance(name, str) and re.search(r"[*+?^$|\[(]", name):
        return ": for a pattern, declare a landing set with `topics_pattern`"
    return ": several topics are a list, as in [a, b]" if isinstance(name, str) and re.search("[,; ]", name) else ""


def _timestamps(v: Any) -> str | None:
    if not isinstance(v, Mapping):
        return f"{v!r} is not a mapping of column paths to rules [LC1106]"
    if not all(isinstance(c, str) for c in v):
        return f"{v!r} is not a mapping of column paths to rules [LC1107]"
    wrong = {c: r for c, r in v.items() if not (isinstance(r, str) and (r in TIMESTAMP_RULES or "%" in r))}
    bad = ", ".join(f"{c}: {r!r}" for c, r in wrong.items())
    near = "".join(sorted({meant(_UNIT.sub(r"\1", str(r)), TIMESTAMP_RULES) for r in wrong.values()}))
    return f"{bad}: allowed are {', '.join(TIMESTAMP_RULES)} or a strptime pattern{near} [LC1108]" if bad else None


def _encodings(v: Any) -> str | None:
    if not isinstance(v, Mapping) or not all(isinstance(c, str) for c in v):
        return f"{v!r} is not a mapping of column paths to encodings [LC1109]"
    bad = [f"{c}: {e!r}" for c, e in v.items() if e not in ENCODINGS]
    return f"{', '.join(bad)}: allowed are {', '.join(ENCODINGS)} [LC1110]" if bad else None


def _create(v: Any) -> str | None:
    if v is None:
        return None
    if isinstance(v, Mapping) and v.get("schema") == "registry":
        return None
    if not isinstance(v, Mapping) or not isinstance(v.get("schema"), list) or not v["schema"]:
        return "needs `schema`, a list of {name, type, required}, or `registry` [LC1111]"
    return None


def _share(v: Any) -> str | None:
    return _RATIO(v) if v else f"{v!r} is not a number above 0 and at most 1 [LC1306]"


_RATIO = _is(lambda v: _number(v) and 0 <= v <= 1, "a number between 0 and 1 [LC1112]")
_BOOLEAN = _is(lambda v: isinstance(v, bool), "true or false [LC1113]")
_DURATION = _is(
    lambda v: isinstance(v, timedelta) and v > timedelta(0),
    f"a positive duration ({EXAMPLES}, seconds, or a timedelta) [LC1114]",
)
_TEXT = _is(lambda v: isinstance(v, str) and bool(v), "a name [LC1116]")
CHECKS: Mapping[str, Check] = {
    # In the order in which options are recorded.
    "name": _matches(_NAME, "a name (letters, digits, '.', '_', '-', at most 100)"),
    "topics": _topics,
    "table": _matches(TABLE_NAME, "a table name (namespace.table)"),
    "format": lambda v: _one_of(*FORMATS)(v),
    "schema": lambda v: None if isinstance(v, str | Mapping) else "is not the schema of a record [LC1344]",
    "reader_schema": lambda v: None if isinstance(v, str | Mapping) else "is not the schema of a record [LC1344]",
    "message": _is(lambda v: isinstance(v, str), "the name of a message [LC1346]"),
    "csv": csv_section,
    "timestamps": _timestamps,
    "encodings": _encodings,
    "start": _one_of("earliest", "latest"),
    "unknown_fields": _one_of("ignore", "dead_letter"),
    "evolve": _one_of("none", "add", "widen"),
    "on_incompatible": _one_of("dead_letter", "stop"),
    "dead_letter_table": _optional(_matches(TABLE_NAME, "a table name (namespace.table)")),
    "dead_letter_max_records": _integer(0),
    "dead_letter_max_ratio": _RATIO,
    "key": key_section,
    "headers": headers_section,
    "metadata_columns": _optional(_BOOLEAN),
    "create": _create,
    "route": check_route,
    "unwrap": check_unwrap,
    "transform": check_transform,
    "record_schema": check_record_schema,
    "functions": check_functions,
    "upsert_key": check_key,
    "upsert_order_by": check_order,
    "upsert_deletes": _one_of(HARD, SOFT, IGNORE),
    "groups": _optional(_integer(1)),
    "max_records": _optional(_integer(1)),
    "max_bytes": _optional(_integer(1)),
    "slice_records": _integer(1),
    "target_window": _optional(_DURATION),
    "target_file_size": _optional(_integer(1)),
    "group_by": _one_of("partition", "load"),
    "replicas": _is(lambda v: _whole(v) and 1 <= v <= MOST_REPLICAS, f"an integer from 1 to {MOST_REPLICAS} [LC1117]"),
    "speculation": _optional(_is(lambda v: _number(v) and 1 < v < math.inf, "a number above 1 [LC1118]")),
    "branch": _optional(_TEXT),
    "checks": check_row_checks,
    "on_spec_change": _one_of("finish", "void"),
    "completion_timeout": _DURATION,
    "commit_files": _integer(1),
    "stalled_cycles": _integer(1),
    "slow_down": _BOOLEAN,
    "max_open_cycles": _optional(_integer(1)),
    "max_pending_slices": _optional(_integer(1)),
    "max_pending_files": _optional(_integer(1)),
    "max_pending_bytes": _optional(_integer(1)),
    "compact": _optional(_BOOLEAN),
    "max_debt_files": _integer(1),
    "max_debt_dead": _share,
    "max_debt_snapshots": _integer(1),
    "location_providers": _is(
        lambda v: isinstance(v, tuple) and all(isinstance(each, str) and WITH_MODULE.fullmatch(each) for each in v),
        "a list of classes (module.Class) [LC1115]",
    ),
    "kafka_config_id": _TEXT,
    "registry_conn_id": _optional(_TEXT),
    "iceberg_conn_id": _TEXT,
    "control_topic": _optional(_matches(_TOPIC, "a topic name")),
    "control_events": _is(lambda v: v in CONTROL_EVENTS, "'1.12' or '1.10', as a text in quotes [LC1343]"),
}
_NAMED = {
    *("name", "topics", "table", "message", "csv", "timestamps", "encodings", "dead_letter_table", "key", "headers"),
    *("upsert_key", "branch", "kafka_config_id", "registry_conn_id", "iceberg_conn_id", "control_topic"),
}
"""Options that are names, or contain some."""


def _wrong_with_evolve(values: Mapping[str, Any], tables: tuple[str, ...]) -> Iterator[str]:
    """:param tables: the tables that take rows"""
    evolves, transform = values.get("evolve", "none") != "none", values.get("transform")
    by_sql = transform.keys() >= set(tables) if isinstance(transform, Mapping) else transform is not None
    if evolves and not by_sql and values.get("format", "json") in FORMATS.keys() - SCHEMA_SOURCES:
        yield f"evolve: {values['format']} records do not name their columns: change the table by hand [LC1119]"
    if values.get("on_incompatible") == "stop" and not evolves:
        yield "columns.on_incompatible: set `evolve` to add or widen, so that records are read before a window [LC1120]"
    elif values.get("on_incompatible") == "stop" and by_sql:
        yield (
            "columns.on_incompatible: remove it: `transform.sql` gives the columns, so no record is read first [LC1121]"
        )


def wrong_values(values: Mapping[str, Any]) -> list[str]:
    """Return the mistakes of fields with wrong values."""
    wrong = [
        f"{label(key)}: {(key in _NAMED and unquoted(value)) or text}"
        for key, value in values.items()
        if (text := CHECKS[key](value))
    ]
    if values.get("table") is not None and values.get("dead_letter_table") == values["table"]:
        wrong.append("dead_letter_table: must differ from `table` [LC1122]")
    topics = values.get("topics")
    if (control := values.get("control_topic")) and control in ((topics,) if isinstance(topics, str) else topics or ()):
        wrong.append(f"connections.control_topic: {control!r} is a source topic too: name another one [LC1347]")
    wrong += [*wrong_with_unwrap(values), *wrong_with_upsert(values), *wrong_with_row_checks(values)]
    if values.get("speculation") is not None and values.get("replicas", 1) != 1:
        wrong.append("window.speculation: remove it: `window.replicas` already repeats all slices [LC1123]")
    create = values.get("create")
    by_registry = isinstance(create, Mapping) and create.get("schema") == "registry"
    if by_registry and values.get("format", "json") not in WITH_REGISTRY:
        wrong.append(
            "create.schema: `registry` needs a format whose records name their schema: "
            f"{', '.join(WITH_REGISTRY)} [LC1124]"
        )
    metadata = METADATA_TYPES if values.get("metadata_columns") is True else {}
    wrong += wrong_together(values, tuple(metadata))
    if isinstance(create, Mapping) and not CHECKS["create"](create):
        wrong += wrong_with_table(create, metadata)
    wrong += wrong_with_route(values, metadata)
    if not any(CHECKS[key](values.get(key)) for key in ("table", "route", "transform")):
        tables = routed_tables(values["table"], values.get("route"))
        wrong += [*wrong_with_transform(values, tables), *_wrong_with_evolve(values, tables)]
    return wrong


def unknown_keys(values: Iterable[str], allowed: Collection[str], hint: Callable[[str], str]) -> list[str]:
    """Return the mistakes for keys that are not allowed."""
    return [f"unknown key {k!r}{hint(k)} [LC1125]" for k in values if k not in allowed]


def all_wrong_at_once(landing: type[T]) -> type[T]:
    """Class decorator: report unknown and missing arguments together with wrong values.

    A plain dataclass stops at the first, with a ``TypeError``. A section may be a mapping.
    """
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(landing)  # type: ignore[arg-type]
    known = [f.name for f in fields]
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    make: Callable[..., None] = landing.__init__

    @wraps(make)
    def checked(self: T, /, *unnamed: Any, **values: Any) -> None:
        if unnamed:
            how = "options are given by name, as in name='orders', topics='orders', table='shop.orders' [LC1348]"
            raise mistaken(landing.__name__, [how])
        wrong = unknown_keys(values, known, lambda key: hint(key, known))
        wrong += [f"missing key {key!r} [LC1220]" for key in required if key not in values]
        sections = {key: section_of(key, value) for key, value in values.items() if key in SECTIONS}
        wrong += [text for _, texts in sections.values() for text in texts]
        stated = {**values, **{key: section for key, (section, _) in sections.items()}}
        if isinstance(topics := stated.get("topics"), Sequence) and not isinstance(topics, str):
            stated["topics"] = tuple(topics)
        if wrong:
            checked = {key: value for key, value in to_flat(stated).items() if key in CHECKS}
            raise mistaken(f"landing {values.get('name')!r}", [*wrong, *wrong_values(checked)])
        make(self, **stated)

    landing.__init__ = checked  # type: ignore[assignment]
    return landing
