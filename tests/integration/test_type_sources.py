# SPDX-License-Identifier: Apache-2.0
"""What every source of wanted columns does, whatever it asks: records on a real broker, plain and framed, and a double
that replaces a registry's newest writer schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from airflow_provider_lakecommit.core.formats import SCHEMA_SOURCES
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SourceUnavailableError
from airflow_provider_lakecommit.formats.evolution.changes import Change, evolution
from airflow_provider_lakecommit.formats.evolution.inferred import InferredTypes, RecordSample, TypeSource, source_for
from airflow_provider_lakecommit.formats.evolution.sampled_columns import RecordsSource
from airflow_provider_lakecommit.kafka.sample import records_at
from airflow_provider_lakecommit.landing import Landing

pytestmark = pytest.mark.integration

Send = Callable[[str, list[dict[str, Any]]], None]
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType(), required=False),
    NestedField(3, "ts", TimestamptzType(), required=False),
)
LANDING = Landing(name="rows", topics="rows", table="shop.rows")
FRAME = b"\x00" + (7).to_bytes(4)


class Framed(RecordsSource):
    """Of records behind the id of a schema."""

    def __init__(self, landing: Landing, kafka: Mapping[str, Any]) -> None:
        super().__init__(replace(landing, format="json_schema"), kafka)


class NewestWriter:
    """Stands for a registry: it knows the newest schema of the writers, and checks no record. A time is a text to
    them, which the decoder of the landing takes for a time.
    """

    newest: Mapping[str, IcebergType] = {"id": LongType(), "n": LongType(), "ts": StringType(), "extra": StringType()}

    def __init__(self, _landing: Landing, _kafka: Mapping[str, Any]) -> None:
        pass

    def sample(self, ranges: Coverage, observed: Coverage) -> RecordSample:
        return RecordSample(ranges=ranges)

    def inferred(self, schema: Schema, sample: RecordSample) -> InferredTypes:
        own = {f.name: f.field_type for f in schema.fields}
        taken = {n: own[n] if n == "ts" and n in own else kind for n, kind in self.newest.items()}
        fields = (NestedField(i, n, kind, required=False) for i, (n, kind) in enumerate(taken.items()))
        return InferredTypes(columns=StructType(*fields), origin="schema 12 of subject orders-value")


def infer(source: TypeSource, schema: Schema, ranges: Coverage) -> InferredTypes:
    return source.inferred(schema, source.sample(ranges, Coverage()))


@pytest.fixture(params=[RecordsSource, Framed, NewestWriter])
def make(request: pytest.FixtureRequest) -> type[TypeSource]:
    made: type[TypeSource] = request.param
    return made


@pytest.fixture
def ranges(make: type[TypeSource], make_topic: Callable[..., str], produce: Callable[..., object]) -> Coverage:
    """Ten records, of which one has a field more and a larger number."""
    topic, frame = make_topic(1), FRAME if make is Framed else b""
    some: list[dict[str, Any]] = [{"id": i, "n": i, "ts": "2026-01-01T00:00:00Z"} for i in range(10)]
    some[6] |= {"n": 1 << 40, "extra": "x"}
    produce(topic, [(str(v["id"]), frame + json.dumps(v).encode()) for v in some])
    return Coverage.of([(SourcePartition(topic, 0, "topic-id"), OffsetRange(0, 10))])


def test_what_records_have_and_the_table_lacks_is_requested(
    make: type[TypeSource], ranges: Coverage, bootstrap: str
) -> None:
    found = infer(make(LANDING, {"bootstrap.servers": bootstrap}), TABLE, ranges)
    assert found.misfits == ()
    assert evolution(TABLE, found.columns, widen=True).changes == (
        Change(path=("n",), kind=LongType(), before=IntegerType()),
        Change(path=("extra",), kind=StringType()),
    )
    assert found.origin


@pytest.mark.heavy
def test_for_a_table_that_has_all_of_it_nothing_is_to_be_done(
    make: type[TypeSource], ranges: Coverage, bootstrap: str
) -> None:
    table = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", LongType(), required=False),
        NestedField(3, "ts", TimestamptzType(), required=False),
        NestedField(4, "extra", StringType(), required=False),
        NestedField(5, "more", StringType(), required=False),
    )
    found = infer(make(LANDING, {"bootstrap.servers": bootstrap}), table, ranges)
    assert evolution(table, found.columns, widen=True) == evolution(table, StructType(), widen=True)
    assert (found.misfits, found.left_out) == ((), ())


@pytest.mark.parametrize("made", [RecordsSource, Framed])
def test_brokers_that_do_not_answer_are_an_error_and_no_empty_answer(
    made: type[TypeSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_lakecommit.formats.evolution.sampled_columns.SECONDS", 1.0)
    missing = Coverage.of([(SourcePartition("orders", 0, "id"), OffsetRange(0, 10))])
    with pytest.raises(SourceUnavailableError, match=r"reading orders.*LC2011"):
        infer(made(LANDING, {"bootstrap.servers": "127.0.0.1:1"}), TABLE, missing)


def test_nothing_between_and_behind_the_ranges_is_checked(
    make_topic: Callable[..., str], produce: Callable[..., object], bootstrap: str
) -> None:
    """It has had its disposition, or is of another window: what is wrong there says nothing of these."""
    topic = make_topic(1)
    produce(topic, [json.dumps({"id": 1, "n": "x" if i in (3, 4, 8, 9) else i}) for i in range(10)], 0)
    kafka = {"bootstrap.servers": bootstrap}
    ranges = Coverage.of((SourcePartition(topic, 0, "t"), OffsetRange(*r)) for r in ((0, 3), (5, 8)))
    found = infer(RecordsSource(LANDING, kafka), TABLE, ranges)
    assert (found.misfits, found.origin.split()[0]) == ((), "6")


def test_ranges_of_markers_alone_are_a_sample_of_nothing(
    make_topic: Callable[..., str], produce: Callable[..., object], bootstrap: str, admin: AdminClient
) -> None:
    topic = make_topic(1)
    produce(topic, [("1", "{}")], transactional=True, outcome="abort")
    ranges = Coverage.of([(SourcePartition(topic, 0, "id"), OffsetRange(0, 2))])
    found = infer(RecordsSource(LANDING, {"bootstrap.servers": bootstrap}), TABLE, ranges)
    assert found.columns.fields == ()


def test_each_format_that_has_a_source_names_one_that_can_be_made() -> None:
    for name in SCHEMA_SOURCES:
        assert callable(source_for(replace(LANDING, format=name), {}).inferred)


def test_single_records_are_read_wherever_they_lie(
    make_topic: Callable[..., str], produce: Callable[..., object], bootstrap: str, admin: AdminClient
) -> None:
    topic = make_topic(2)
    for p in range(2):
        produce(topic, [(None, f"{p}-{i}") for i in range(30)], partition=p)
    at = [(0, 1, 2), (0, 5, 7), (0, 29, 30), (1, 3, 4), (1, 40, 41)]
    places = Coverage.of((SourcePartition(topic, p, "id"), OffsetRange(a, b)) for p, a, b in at)
    found = records_at({"bootstrap.servers": bootstrap}, places, seconds=30)
    assert sorted(value for _, value in found if value) == [b"0-1", b"0-29", b"0-5", b"0-6", b"1-3"]
    assert sorted(place for place, _ in found)[0] == f"{topic}[0]@1"
    assert records_at({"bootstrap.servers": "127.0.0.1:1"}, Coverage(), seconds=30) == []
