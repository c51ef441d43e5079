# SPDX-License-Identifier: Apache-2.0
"""The section `upsert` of a landing: the checks of its values, and of what cannot work together with them.

Contract: pure. A landing without ``upsert.key`` appends. What only the table can show is checked when a window is
planned (:func:`wrong_columns`, by the table's own columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing.names import meant
from airflow_provider_lakecommit.landing.value_sections import columns_of_key

HARD, SOFT, IGNORE = "hard", "soft", "ignore"
IS_DELETED = "_is_deleted"
"""The column that marks a deleted row, with ``deletes: soft``."""
OFFSET = "offset"
_COMPARED = ("boolean", "int", "long", "date", "time", "timestamp", "decimal", "string", "uuid", "fixed", "binary")
"""Types of key columns, by the beginning of their names."""
_ORDERED = ("int", "long", "date", "time", "timestamp")


def check_key(v: Any) -> str | None:
    if isinstance(v, tuple) and all(isinstance(c, str) and c for c in v) and len({*v}) == len(v):
        return None
    return f"{v!r} is not a list of different columns, as in [id] [LC1321]"


def check_order(v: Any) -> str | None:
    if v == OFFSET or (isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and v[0] and v[1] == OFFSET):
        return None
    return f"{v!r} is neither `offset` nor [column, offset], as in [updated_at, offset] [LC1322]"


def wrong_columns(upsert: Any, types: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the columns that the section names, in a table with columns of these types."""
    for name in upsert.key:
        kind = types.get(name)
        if kind is None:
            yield f"upsert.key: the table has no column {name!r}{meant(name, types)} [LC1323]"
        elif not kind.startswith(_COMPARED):
            yield f"upsert.key: column {name} is {kind}, whose values cannot identify a row [LC1324]"
    name = upsert.order_column
    if name is not None and not types.get(name, "").startswith(_ORDERED):
        yield (
            f"upsert.order_by: column {name} is {types.get(name, 'missing')}; it must be one of "
            f"{', '.join(_ORDERED)} [LC1325]"
        )
    if upsert.deletes == SOFT and types.get(IS_DELETED) != "boolean":
        yield (
            f"upsert.deletes: soft marks deleted rows in column {IS_DELETED}, which is "
            f"{types.get(IS_DELETED, 'missing')}: add it as boolean [LC1326]"
        )


def wrong_with_upsert(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a valid section together with the other options of its landing."""
    key = values.get("upsert_key") or ()
    order, deletes = values.get("upsert_order_by", OFFSET), values.get("upsert_deletes", HARD)
    if not key:
        if (order, deletes) != (OFFSET, HARD):
            yield "upsert: needs `key`, the columns that identify a row [LC1327]"
        return
    if check_key(key) or check_order(order):
        return
    if values.get("route") is not None:
        yield "upsert: remove `route`: a row whose key moves to another table would stay in the first one [LC1328]"
    csv = values.get("csv")
    if isinstance(csv, Mapping) and csv.get("rows", "one") != "one":
        yield "upsert: set `rows: one`: the rows of one record have no order [LC1330]"
    if values.get("metadata_columns") is False:
        yield "upsert: remove `columns.metadata: false`: kafka_offset and the like order the changes of a key [LC1331]"
    yield from _wrong_tombstones(values, key, order, deletes)


def _wrong_tombstones(values: Mapping[str, Any], key: Sequence[str], order: Any, deletes: Any) -> Iterator[str]:
    """Without an envelope, a delete is a record without a value: all that is known of it is in its key and headers."""
    if values.get("unwrap") is not None or deletes == IGNORE:
        return
    stated = values.get("key")
    by_key = columns_of_key(stated) if isinstance(stated, Mapping) else ()
    if missing := [c for c in key if c not in by_key]:
        yield (
            f"upsert.deletes: a tombstone has no {', '.join(missing)}: fill the key from the record key with "
            "`columns.key`, or set `upsert.deletes: ignore` [LC1332]"
        )
    headers = values.get("headers")
    known = {*by_key, *(headers if isinstance(headers, Mapping) else ()), "kafka_timestamp"}
    if isinstance(order, tuple) and order[0] not in known:
        yield (
            f"upsert.order_by: a tombstone has no {order[0]}: fill it from a header, order by `offset`, or set "
            "`upsert.deletes: ignore` [LC1333]"
        )


def require_appends(landing: Any, what: str) -> None:
    """:raises SpecError: the landing upserts, and this operation needs the rows of all records"""
    if landing.upsert.key:
        raise SpecError(
            "LC1334",
            f"landing {landing.name} keeps one row per key (`upsert`), and {what} needs a row of each record. To land "
            "records again, use `lakecommit reset offsets SPEC --from OFFSETS --again`, or produce them again",
        )


def require_traces(landing: Any) -> None:
    """:raises SpecError: deletes leave no trace in the table, so that older changes could bring rows back"""
    if landing.upsert.leaves_no_trace:
        raise SpecError(
            "LC1335",
            f"landing {landing.name} deletes rows (`upsert.deletes: hard`), so a backfill of older records could bring "
            "deleted rows back. Set `upsert.deletes` to soft or ignore",
        )
