# SPDX-License-Identifier: Apache-2.0
"""What an upserting landing costs, and whether offsets order the changes of its keys.

Contract: reads the manifests of the data table, and up to :data:`RECORDS` record keys of the topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Message
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.iceberg import HeadReader, bound_of, buckets_of
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

RECORDS = 3_000
SECONDS = 10.0
FILES_COMPARED = 64
SECONDS_PER_ROW = 8e-8
"""Processor time per row that is looked up, by ``bench/upsert.py``: 4 s for 50 million rows."""
DEAR = 2.0
"""Seconds of processor time per publication at which a table whose files cannot be skipped is a warning."""


def upserts(session: LandingSession, table: Table | None) -> Iterable[CheckResult]:
    yield from _order(session)
    if table is not None:
        yield from _cost(session, table)


def _order(session: LandingSession) -> Iterator[CheckResult]:
    """Where offsets alone order changes, each key must have one partition."""
    check, upsert = "order of changes", session.landing.upsert
    if upsert.order_column is not None:
        yield ok(check, f"{upsert.order_column}, then the offset")
        return
    partitions = defaultdict[bytes, set[str]](set)
    none = 0
    found = sample(
        session.kafka, session.landing.topic_names, RECORDS, seconds=SECONDS, value_of=lambda m: _key_of(m) or b""
    )
    for position, key in found:
        none += not key
        if key:
            partitions[key].add(position.partition("@")[0])
    moved = sum(len(numbers) > 1 for numbers in partitions.values())
    remedy = (
        "set `upsert.order_by` to [column, offset] with a column that orders the changes, for example a log position "
        "of the source"
    )
    if moved:
        yield warn(check, f"{moved} of {len(partitions)} sampled keys are in several partitions", remedy)
    elif none and len({position.partition("@")[0] for position, _ in found}) > 1:
        observed = (
            f"{none} of {len(found)} sampled records have no key, so changes of a row may be in several partitions"
        )
        yield warn(check, observed, remedy)
    else:
        yield ok(check, f"the offset; each of {len(partitions)} sampled keys is in one partition")


def _key_of(message: Message) -> bytes | None:
    key = message.key()
    return key.encode() if isinstance(key, str) else key


def _bounds(field: NestedField, file: DataFile) -> tuple[Any, Any]:
    low, high = ((b or {}).get(field.field_id) for b in (file.lower_bounds, file.upper_bounds))
    return bound_of(field.field_type, low), bound_of(field.field_type, high)


def _cost(session: LandingSession, table: Table) -> Iterator[CheckResult]:
    """How many rows a publication looks up for a few keys from anywhere, by bounds and buckets of the files."""
    landing = session.landing
    field = next((f for f in table.schema().fields if f.name == landing.upsert.key[0]), None)
    files = [e.data_file for e in HeadReader(landing.table).read(table, landing.branch).entries.values()]
    if field is None or not files:
        return
    places = [(*_bounds(field, f), f.spec_id, [b for *_, b in buckets_of(table, f, (field.field_id,))]) for f in files]
    keys = [place for place in places[:: -(-len(places) // FILES_COMPARED)] if place[0] is not None]
    hits = sum(
        (low is None or high is None or low <= key <= high) and (spec != its_spec or buckets == its_buckets)
        for key, _, its_spec, its_buckets in keys
        for low, high, spec, buckets in places
    )
    share = hits / (len(keys) * len(places)) if keys else 1.0
    rows = sum(f.record_count for f in files)
    seconds = rows * SECONDS_PER_ROW
    check, many = f"look-up in {landing.table}", f"{rows} rows in {len(files)} files"
    observed = (
        f"{many}; by the bounds and buckets of {field.name}, a key may be in {share:.0%} of the files. A publication "
        f"with many keys reads the keys of all of them, in about {seconds:.1f} s of processor time"
    )
    if share > 1 / 2 and seconds >= DEAR:
        yield warn(check, observed, "land longer windows, or partition or sort the table by the key")
    else:
        yield ok(check, observed)
