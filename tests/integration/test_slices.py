# SPDX-License-Identifier: Apache-2.0
"""One slice from a real topic to files of a real table: rows, counts, dead letters, budgets, what a failure leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from airflow_provider_lakecommit.core.formats import FORMATS
from airflow_provider_lakecommit.core.model import Budget, Counts, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SourceError, TableError
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.decoders import check_schema
from airflow_provider_lakecommit.spark.slices import SliceOutcome, SliceStopped
from airflow_provider_lakecommit.spark.totals import SliceTotals
from tests.support import lines
from tests.support.declared import changed_landing, landing_of
from tests.support.jobs import plan_of, slice_job
from tests.support.slices import land_slice
from tests.support.targets import target_of

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]
TABLE, DEAD = "shop.orders", "shop.orders_dead"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "ts", TimestamptzType()))
MILLIS = 1_767_355_200_000


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A data table by day, a dead-letter table, and a landing of both."""

    bootstrap: str
    data: Table
    dead: Table
    landing: Landing

    def run(self, *spans: Span, **how: Any) -> SliceOutcome:
        landing = how.pop("landing", self.landing)
        slice_ = Slice(
            slice_id=uuid4(),
            group=0,
            spans=spans,
            tables=how.pop("tables", landing.tables),
            budget=how.pop("budget", None),
        )
        targets = (target_of(self.data, TABLE), target_of(self.dead, DEAD))
        job = slice_job(landing, plan_of(landing, [slice_], targets))
        return land_slice(job, self.bootstrap, self.data.io.properties, **how)

    def append(self, outcome: SliceOutcome) -> None:
        for name, table in ((TABLE, self.data), (DEAD, self.dead)):
            with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
                for file in outcome.files.get(name, []):
                    append.append_data_file(file)

    def ids(self) -> list[int]:
        return sorted(self.data.scan().to_arrow()["id"].to_pylist())

    def files(self) -> list[Path]:
        roots = [Path(urlparse(t.location()).path) for t in (self.data, self.dead)]
        return [p for root in roots for p in root.rglob("*.parquet")]


@pytest.fixture
def lake(catalog: Catalog, bootstrap: str) -> Lake:
    by_day = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"))
    return Lake(
        bootstrap=bootstrap,
        data=catalog.create_table(TABLE, SCHEMA, partition_spec=by_day),
        dead=catalog.create_table(DEAD, DEAD_LETTER_SCHEMA),
        landing=Landing(
            name="orders", topics="any", table=TABLE, dead_letter_table=DEAD, timestamps={"ts": "epoch_millis"}
        ),
    )


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    # Its records bear a fixed date.
    return make_topic(2, retention_ms=-1)


def span(topic: str, start: int, end: int, partition: int = 0) -> Span:
    return Span(SourcePartition(topic, partition), OffsetRange(start, end))


def order(i: int, day: int = 0) -> str:
    return f'{{"id":{i},"ts":{MILLIS + day * 86_400_000}}}'


def counts(outcome: SliceOutcome) -> list[Counts]:
    return [s.counts for s in outcome.report.spans]


def test_the_records_of_a_slice_become_the_rows_of_its_files(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [order(i, i % 3) for i in range(100)], 0)
    produce(topic, [order(1000 + i) for i in range(50)], 1)

    outcome = lake.run(span(topic, 10, 100), span(topic, 0, 50, 1))
    lake.append(outcome)

    assert counts(outcome) == [Counts(landed=90), Counts(landed=50)]
    assert outcome.rows == {TABLE: 140, DEAD: 0}
    assert outcome.report.bytes == sum(len(order(i)) for i in range(10, 100)) + sum(
        len(order(1000 + i)) for i in range(50)
    )
    assert outcome.report.blocked is None
    assert lake.ids() == [*range(10, 100), *range(1000, 1050)]
    assert len(outcome.files[TABLE]) == 3


@pytest.mark.heavy
def test_a_slice_reports_what_it_cost(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [order(i) for i in range(2000)], 0)
    began = time.monotonic()
    outcome = lake.run(span(topic, 0, 2000))
    took = time.monotonic() - began

    cost = outcome.report.cost
    assert min(cost.read_seconds, cost.decode_seconds, cost.write_seconds) > 0
    assert cost.read_seconds + cost.decode_seconds + cost.write_seconds < took + 0.003
    assert cost.bytes == sum(path.stat().st_size for path in lake.files())


def test_every_offset_is_accounted_for(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [order(0), ("k", None), order(1)], 0)  # 0 1 2
    produce(topic, [order(90), order(91)], 0, transactional=True, outcome="abort")  # 3 4, marker 5
    produce(topic, [order(2), "no json"], 0, transactional=True)  # 6 7, marker 8

    outcome = lake.run(span(topic, 0, 9))
    lake.append(outcome)

    assert counts(outcome) == [Counts(landed=3, rejected=1, filtered=1, gaps=4)]
    assert lake.ids() == [0, 1, 2]


def test_spans_that_share_chunks_are_accounted_for_one_by_one(
    lake: Lake, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(4)
    produce(topic, [order(0), ("k", None), order(1)], 0)
    produce(topic, ["no json", order(10), "no json", ("k", None), ("k", None)], 1)
    produce(topic, [("k", None)] * 3, 2)
    produce(topic, [order(i) for i in range(30, 40)], 3)
    spans = [span(topic, 0, 3), span(topic, 0, 5, 1), span(topic, 0, 3, 2), span(topic, 4, 9, 3)]

    outcome = lake.run(*spans, budget=Budget(max_records=10, max_ratio=1.0))
    lake.append(outcome)

    assert counts(outcome) == [
        Counts(landed=2, filtered=1),
        Counts(landed=1, rejected=2, filtered=2),
        Counts(filtered=3),
        Counts(landed=5),
    ]
    assert lake.ids() == [0, 1, 10, *range(34, 39)]
    assert sorted(lake.dead.scan().to_arrow()["offset"].to_pylist()) == [0, 2]


def test_a_rejected_record_is_in_the_dead_letter_table_with_all_it_had(
    lake: Lake, topic: str, produce: Produce
) -> None:
    headers = [("trace", b"\x00\xff"), ("trace", b"2"), ("none", None)]
    produce(topic, [order(0)], 0)
    produce(topic, [(b"k\xff", b'{"id":"\xff"}')], 0, headers=headers, timestamp=MILLIS)
    produce(topic, [order(2), (None, '{"ts":1}')], 0)

    outcome = lake.run(span(topic, 0, 4))
    lake.append(outcome)

    assert lake.ids() == [0, 2]
    first, second = sorted(lake.dead.scan().to_arrow().to_pylist(), key=lambda r: r["offset"])
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(MILLIS / 1000, UTC),
        "key": b"k\xff",
        "value": b'{"id":"\xff"}',
        "headers": [
            {"key": "trace", "value": b"\x00\xff"},
            {"key": "trace", "value": b"2"},
            {"key": "none", "value": None},
        ],
        "kind": "not_json",
        "column": None,
        "reason": "the value is not valid UTF-8",
        "landing": "orders",
        "generation": None,
    }
    assert (second["offset"], second["key"], second["kind"], second["column"]) == (3, None, "missing_required", "id")


def test_the_dead_letter_table_gets_the_field_ids_that_are_fixed(lake: Lake) -> None:
    assert lake.dead.schema() == DEAD_LETTER_SCHEMA


@pytest.mark.heavy
def test_a_slice_that_only_one_table_lacks_writes_only_that_table(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [order(0), "bad", order(2)], 0)

    dead = lake.run(span(topic, 0, 3), tables=(DEAD,))
    data = lake.run(span(topic, 0, 3), tables=(TABLE,))

    assert (dead.rows, data.rows) == ({DEAD: 1}, {TABLE: 2})
    assert counts(dead) == counts(data) == [Counts(landed=2, rejected=1)]
    assert {p.name for p in lake.files()} == {
        Path(f.file_path).name for o in (dead, data) for files in o.files.values() for f in files
    }


def test_without_a_dead_letter_table_one_reject_blocks_and_leaves_nothing(
    lake: Lake, topic: str, produce: Produce
) -> None:
    produce(topic, [order(0), "bad", order(2), "worse"], 0)

    outcome = lake.run(span(topic, 0, 4), landing=replace(lake.landing, dead_letter_table=None))

    assert outcome.report.blocked is not None
    assert "2 rejected records and no dead_letter_table" in outcome.report.blocked
    assert outcome.report.blocked.startswith("the value is not valid JSON: ")
    assert outcome.report.blocked.endswith(f"first: {topic}[0]@1, {topic}[0]@3")
    assert counts(outcome) == [Counts(landed=2, rejected=2)]
    assert outcome.files == {}
    assert lake.files() == []


@pytest.mark.parametrize(
    ("own", "blocked"),
    [
        (None, "4 rejected records of 10 are over dead_letters.max_records=3"),
        (Budget(max_records=5, max_ratio=0.3), "4 rejected records of 10 are over dead_letters.max_ratio=0.3"),
        (Budget(max_records=4, max_ratio=1.0), None),
    ],
)
def test_the_budget_of_the_slice_or_of_the_landing_decides(
    lake: Lake, topic: str, produce: Produce, own: Budget | None, blocked: str | None
) -> None:
    produce(topic, [order(i) if i > 3 else "bad" for i in range(10)], 0)
    landing = changed_landing(lake.landing, dead_letter_max_records=3, dead_letter_max_ratio=1.0)

    outcome = lake.run(span(topic, 0, 10), landing=landing, budget=own)

    assert counts(outcome) == [Counts(landed=6, rejected=4)]
    if blocked is None:
        assert outcome.rows == {TABLE: 6, DEAD: 4}
    else:
        assert blocked in (outcome.report.blocked or "")
        assert lake.files() == []


@pytest.mark.heavy
def test_a_blocked_slice_of_several_spans_reports_which_one_is_bad(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [order(i) for i in range(5)], 0)
    produce(topic, ["bad"] * 5, 1)

    outcome = lake.run(span(topic, 0, 5), span(topic, 0, 5, 1), budget=Budget(max_records=2, max_ratio=1.0))

    assert outcome.report.blocked
    assert counts(outcome) == [Counts(landed=5), Counts(rejected=5)]


def test_metadata_columns_are_filled_for_the_rows_that_landed(
    catalog: Catalog, lake: Lake, topic: str, produce: Produce
) -> None:
    schema = Schema(
        NestedField(1, "kafka_offset", LongType(), required=True),
        NestedField(2, "id", LongType(), required=True),
        NestedField(3, "kafka_topic", StringType(), required=True),
        NestedField(4, "kafka_partition", IntegerType()),
        NestedField(5, "kafka_timestamp", TimestamptzType()),
        NestedField(6, "kafka_key", BinaryType()),
    )
    table = catalog.create_table("shop.with_metadata", schema)
    landing = changed_landing(lake.landing, table="shop.with_metadata", metadata_columns=True, timestamps={})
    produce(
        topic, [("a", '{"id":1}'), "bad", ("gone", None), (None, '{"id":2,"kafka_offset":99}')], 0, timestamp=MILLIS
    )
    slice_ = Slice(slice_id=uuid4(), group=0, spans=(span(topic, 0, 4),), tables=landing.tables)
    job = slice_job(landing, plan_of(landing, [slice_], [target_of(table, landing.table), target_of(lake.dead, DEAD)]))

    outcome = land_slice(job, lake.bootstrap, lake.data.io.properties)

    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        append.append_data_file(outcome.files[landing.table][0])
    at = datetime.fromtimestamp(MILLIS / 1000, UTC)
    common = {"kafka_topic": topic, "kafka_partition": 0, "kafka_timestamp": at}
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "kafka_offset": 0, "kafka_key": b"a", **common},
        {"id": 2, "kafka_offset": 3, "kafka_key": None, **common},
    ]
    assert outcome.report.ignored_fields == {"kafka_offset": 1}


def test_ignored_fields_are_summed_over_the_slice(lake: Lake, topic: str, produce: Produce) -> None:
    produce(topic, [{"id": i, "extra": {"a": i}} for i in range(30)], 0)
    produce(topic, [{"id": i, "extra": "text"} for i in range(12)], 1)

    outcome = lake.run(span(topic, 0, 30), span(topic, 0, 12, 1))

    assert outcome.report.ignored_fields == {"extra": 42}


@pytest.fixture
def first_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Was something read?"""
    count, read = SliceTotals.count, list[int]()

    def counted(*args: Any) -> None:
        count(*args)
        read.append(1)

    monkeypatch.setattr(SliceTotals, "count", counted)
    return lambda: bool(read)


def test_a_slice_instructed_to_stop_is_what_was_read_until_then_to_the_record(
    lake: Lake, topic: str, produce: Produce, first_chunk: Callable[[], bool]
) -> None:
    produce(topic, [order(i) for i in range(3000)], 0)
    produce(topic, [order(i) for i in range(3000, 6000)], 1)
    produce(topic, [order(i) for i in range(6000, 6010)], 0)

    whole = (span(topic, 0, 3000), span(topic, 0, 3000, 1), span(topic, 3000, 3010))
    outcome = lake.run(*whole, should_stop=first_chunk)
    lake.append(outcome)

    spans = [s.span for s in outcome.report.spans]
    assert 0 < sum(map(len, spans)) < 6000, "it ended before all was read"
    assert all(s.range.start == 0 for s in spans), "of the second range of a partition nothing was begun"
    assert counts(outcome) == [Counts(landed=len(s)) for s in spans]
    read = {s.partition.partition: s.range.end for s in spans}
    assert lake.ids() == [*range(read.get(0, 0)), *range(3000, 3000 + read.get(1, 0))]


def test_a_slice_instructed_to_stop_before_anything_was_read_leaves_no_file(
    lake: Lake, topic: str, produce: Produce
) -> None:
    produce(topic, [order(i) for i in range(3000)], 0)

    with pytest.raises(SliceStopped, match="LC5038"):
        lake.run(span(topic, 0, 3000), should_stop=lambda: True)

    assert lake.files() == []


@pytest.mark.heavy
def test_a_slice_instructed_to_stop_is_not_evaluated_by_the_rejects_of_its_beginning(
    lake: Lake, topic: str, produce: Produce, first_chunk: Callable[[], bool]
) -> None:
    produce(topic, [*("no json" for _ in range(150)), *(order(i) for i in range(20_000))], 0)

    of_an_operator = Budget(max_records=1000, max_ratio=0.01)
    with pytest.raises(SliceStopped, match="LC5038"):
        lake.run(span(topic, 0, 20_150), budget=of_an_operator, should_stop=first_chunk)

    assert lake.files() == []
    assert lake.run(span(topic, 0, 20_150), budget=of_an_operator).report.blocked is None, (
        "the slice as a whole is sound"
    )


def test_a_source_that_fails_in_mid_slice_leaves_no_file(
    lake: Lake, topic: str, produce: Produce, admin: AdminClient
) -> None:
    produce(topic, [order(i) for i in range(10)], 0)
    produce(topic, [order(i) for i in range(10)], 1)
    deleted = TopicPartition(topic, 1, 5)
    admin.delete_records([deleted])[deleted].result(30)

    with pytest.raises(SourceError, match="LC5053"):
        lake.run(span(topic, 0, 10), span(topic, 0, 10, 1))

    assert lake.files() == []


@pytest.mark.heavy
def test_progress_is_reported_now_and_then(lake: Lake, topic: str, produce: Produce) -> None:
    for _ in range(4):
        produce(topic, ['{"id":1}'] * 30_000, 0)
    lines: list[str] = []

    lake.run(span(topic, 0, 120_000), progress=lines.append)

    assert len(lines) == 1
    assert lines[0].startswith(f"slice {topic}[0][0, 120000): 1")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            Schema(NestedField(1, "id", LongType()), NestedField(2, "kafka_offset", StringType())),
            "kafka_offset is string, it must be long",
        ),
        (
            Schema(NestedField(1, "id", LongType()), NestedField(2, "kafka_key", BinaryType(), required=True)),
            "must be binary and optional",
        ),
        (Schema(NestedField(1, "id", BinaryType())), "column id is binary, and JSON has no bytes"),
    ],
)
def test_a_table_that_this_landing_cannot_fill_is_refused_at_once(schema: Schema, message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_schema(landing_of(name="a", topics="a", table="a.b", metadata_columns=True), schema)


def test_a_format_that_is_registered_lands_a_slice(
    catalog: Catalog, lake: Lake, topic: str, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "lines", lines.LINES)
    produce(topic, ["a\nb", "", "c", b"\xff", None], 0)
    landing = changed_landing(
        lake.landing, format="lines", timestamps={}, metadata_columns=True, dead_letter_max_ratio=1
    )
    table = catalog.create_table("shop.lines", lines.SCHEMA)
    check_schema(landing, lines.SCHEMA)

    outcome = replace(lake, data=table).run(span(topic, 0, 5), landing=landing)
    replace(lake, data=table).append(outcome)

    assert counts(outcome) == [Counts(landed=2, rejected=1, filtered=2)]
    found = table.scan().to_arrow().select(["kafka_offset", "line"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(0, "a"), (0, "b"), (2, "c")]
    assert lake.dead.scan().to_arrow()["offset"].to_pylist() == [3]


def test_a_plan_without_the_data_table_is_refused(lake: Lake, topic: str) -> None:
    slice_ = Slice(slice_id=uuid4(), group=0, spans=(span(topic, 0, 1),), tables=(DEAD,))
    job = slice_job(lake.landing, plan_of(lake.landing, [slice_], [target_of(lake.dead, DEAD)]))
    with pytest.raises(TableError, match=r"shop\.orders.*LC5037"):
        land_slice(job, lake.bootstrap, {})
