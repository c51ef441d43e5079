# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from airflow_provider_lakecommit.core.model import Counts, LedgerSection, SliceReport, Span, SpanReport, TableReport
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.core.provenance import RowsPerOffset
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import (
    AppendDecision,
    Grounds,
    StagedSlice,
    evaluate_slices,
)
from tests.fakes.lake import BY_BUCKET, SCHEMA, at, coverage, data_file, section, spans, staged

EPOCH = uuid4()


def metadata_of(schema: Schema = SCHEMA, spec: PartitionSpec | None = None) -> TableMetadata:
    return new_table_metadata(schema, spec or PartitionSpec(), UNSORTED_SORT_ORDER, "file:///t", {})


def decide(
    *slices: StagedSlice,
    ours: LedgerSection | None = None,
    others: tuple[LedgerSection, ...] = (),
    metadata: TableMetadata | None = None,
    condition: Condition = Condition.PRESENT,
) -> AppendDecision:
    ours = ours or section(epoch=EPOCH)
    found = metadata or metadata_of()
    state = LedgerState(
        condition=condition, branch="main", table_uuid=found.table_uuid, sections=(*others, ours), reason="rolled back"
    )
    return evaluate_slices(slices, found, state, ours)


def grounds(found: AppendDecision) -> list[Grounds]:
    return [r.grounds for r in found.refused]


def test_slices_that_follow_the_ledger_are_accepted_in_order() -> None:
    a, b = staged((0, 5, 10), (1, 0, 3), epoch=EPOCH), staged((0, 10, 12), epoch=EPOCH)
    found = decide(a, b, ours=section(epoch=EPOCH, covered=coverage((0, 0, 5))))
    assert found == AppendDecision(accepted=(a, b), already=(), refused=())


def test_a_slice_without_a_file_is_of_no_spec_and_no_schema() -> None:
    a = staged((0, 0, 5), epoch=EPOCH, files=(), rows=0, spec_id=7, schema_id=9)
    assert decide(a).accepted == (a,)


def test_a_slice_that_is_in_the_ledger_is_there_already() -> None:
    a = staged((0, 2, 5), epoch=EPOCH)
    assert decide(a, ours=section(epoch=EPOCH, covered=coverage((0, 0, 9)))).already == (a,)


@pytest.mark.parametrize("covered", [(0, 0, 3), (0, 4, 5)])
def test_a_slice_that_is_partly_there_is_void(covered: tuple[int, int, int]) -> None:
    found = decide(staged((0, 2, 5), epoch=EPOCH), ours=section(epoch=EPOCH, covered=coverage(covered)))
    assert grounds(found) == [Grounds.OVERLAP]
    assert found.refused[0].void


def test_what_any_landing_or_stream_has_is_not_landed_again() -> None:
    a = staged((0, 0, 5), epoch=EPOCH)
    for other in (section("returns"), section("orders", "backfill")):
        taken = section(other.landing, other.lane, covered=coverage((0, 4, 8)))
        assert grounds(decide(a, others=(taken,))) == [Grounds.OVERLAP]


def test_another_topic_of_the_same_name_is_another_topic() -> None:
    a = staged((0, 0, 5), epoch=EPOCH)
    other = section("returns", covered=coverage((0, 0, 5), topic_id="YW5vdGhlci10b3BpYy0tLQ"))
    assert decide(a, others=(other,)).accepted == (a,)


def test_of_two_slices_that_overlap_the_first_is_taken() -> None:
    a, b = staged((0, 0, 5), epoch=EPOCH), staged((0, 0, 5), epoch=EPOCH)
    found = decide(a, b)
    assert found.accepted == (a,)
    assert [(r.slice, r.grounds) for r in found.refused] == [(b, Grounds.OVERLAP)]


def test_a_slice_of_an_epoch_that_is_over_is_void() -> None:
    assert grounds(decide(staged((0, 0, 5), epoch=uuid4()))) == [Grounds.EPOCH]


def test_nothing_is_appended_to_a_table_that_was_rolled_back() -> None:
    assert grounds(decide(staged((0, 0, 5), epoch=EPOCH), condition=Condition.ROLLED_BACK)) == [Grounds.EPOCH]


def test_a_hole_is_not_made_and_what_lies_behind_waits() -> None:
    first, gap, behind = staged((0, 0, 5), epoch=EPOCH), staged((0, 6, 8), epoch=EPOCH), staged((0, 8, 9), epoch=EPOCH)
    found = decide(behind, gap, first)
    assert found.accepted == (first,)
    assert {r.slice.slice_id for r in found.refused} == {gap.slice_id, behind.slice_id}
    assert not any(r.void for r in found.refused)
    assert all("offset 5 of orders[0] is missing" in r.reason for r in found.refused)


def test_a_slice_behind_a_refused_one_waits() -> None:
    found = decide(staged((0, 0, 5), epoch=uuid4()), staged((0, 5, 9), epoch=EPOCH))
    assert grounds(found) == [Grounds.EPOCH, Grounds.HOLE]


def test_a_hole_in_one_partition_holds_up_the_slices_that_need_it_in_others() -> None:
    joint, follows = staged((0, 3, 5), (1, 0, 5), epoch=EPOCH), staged((1, 5, 9), epoch=EPOCH)
    alone = staged((2, 0, 4), epoch=EPOCH)
    found = decide(joint, follows, alone)
    assert found.accepted == (alone,)
    assert grounds(found) == [Grounds.HOLE, Grounds.HOLE]


def test_a_slice_of_another_partition_spec_is_void() -> None:
    metadata = metadata_of(spec=BY_BUCKET)
    spec_id = metadata.default_spec_id
    good = data_file("file:///a", 5, spec_id=spec_id, partition=[1])
    assert decide(staged((0, 0, 5), epoch=EPOCH, files=(good,), spec_id=spec_id), metadata=metadata).accepted
    assert grounds(decide(staged((0, 0, 5), epoch=EPOCH, spec_id=7), metadata=metadata)) == [Grounds.SPEC]


def mismatched(**changes: object) -> StagedSlice:
    return staged((0, 0, 5), epoch=EPOCH, **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mismatched(rows=4), "hold 5 rows, its report says 4"),
        (lambda: mismatched(files=()), "hold 0 rows"),
        (lambda: mismatched(files=(data_file("file:///a", 5, partition=[1]),)), "1 partition values of spec 0, not 0"),
        (lambda: mismatched(files=(data_file("file:///a", 5, spec_id=3),)), "of spec 3"),
        (
            lambda: mismatched(files=(data_file("file:///a", 3), data_file("file:///a", 2))),
            "file:///a is already in this commit",
        ),
        (
            lambda: mismatched(spans=(SpanReport(span=Span(at(0), OffsetRange(0, 5)), counts=Counts(landed=4)),)),
            "accounts for 4",
        ),
        (
            lambda: mismatched(
                spans=(
                    SpanReport(span=Span(at(0), OffsetRange(0, 5)), counts=Counts(landed=5)),
                    SpanReport(span=Span(at(0), OffsetRange(0, 2)), counts=Counts(landed=2)),
                )
            ),
            "overlap each other",
        ),
    ],
)
def test_what_does_not_add_up_is_void(make: Callable[[], StagedSlice], message: str) -> None:
    found = decide(make())
    assert grounds(found) == [Grounds.ACCOUNTING]
    assert message in str(found.refused[0])


def test_a_file_of_another_slice_is_not_appended_twice() -> None:
    files = (data_file("file:///same", 5),)
    a, b = mismatched(files=files), staged((1, 0, 5), epoch=EPOCH, files=files)
    found = decide(a, b)
    assert found.accepted == (a,)
    assert grounds(found) == [Grounds.ACCOUNTING]


def evolved(written: Schema, current: Schema) -> TableMetadata:
    base = metadata_of()
    return base.model_copy(
        update={
            "schemas": [written.model_copy(update={"schema_id": 0}), current.model_copy(update={"schema_id": 1})],
            "current_schema_id": 1,
        }
    )


def column(kind: IcebergType, *, field_id: int = 2, required: bool = False, name: str = "c") -> NestedField:
    return NestedField(field_id, name, kind, required=required)


ID = NestedField(1, "id", LongType(), required=True)


@pytest.mark.parametrize(
    ("written", "current"),
    [
        ([], [column(StringType())]),
        ([column(StringType())], []),
        ([column(StringType())], [column(StringType(), name="renamed")]),
        ([column(IntegerType())], [column(LongType())]),
        ([column(LongType(), required=True)], [column(LongType())]),
        ([column(StructType())], [column(StructType(column(DoubleType(), field_id=3)))]),
        (
            [column(ListType(3, IntegerType(), element_required=True))],
            [column(ListType(3, LongType(), element_required=False))],
        ),
    ],
)
def test_files_of_an_older_schema_are_taken_while_the_table_can_read_them(
    written: list[NestedField], current: list[NestedField]
) -> None:
    one = mismatched()
    assert decide(one, metadata=evolved(Schema(ID, *written), Schema(ID, *current))).accepted == (one,)


@pytest.mark.parametrize(
    ("written", "current", "message"),
    [
        ([], [column(StringType(), required=True)], "lacks the required column c"),
        ([column(StringType())], [column(StringType(), required=True)], "allows nulls in c"),
        ([column(StringType())], [column(LongType())], "has c as string, which cannot be read as long"),
        ([column(LongType())], [column(IntegerType())], "has c as long"),
        (
            [column(StructType(column(LongType(), field_id=3)))],
            [column(StructType(column(StringType(), field_id=3, name="x")))],
            r"c\.x",
        ),
        (
            [column(ListType(3, StringType(), element_required=False))],
            [column(ListType(3, StringType(), element_required=True))],
            r"c\.element",
        ),
    ],
)
def test_files_that_the_table_cannot_read_any_more_are_void(
    written: list[NestedField], current: list[NestedField], message: str
) -> None:
    found = decide(mismatched(), metadata=evolved(Schema(ID, *written), Schema(ID, *current)))
    assert grounds(found) == [Grounds.SCHEMA]
    assert re.search(message, found.refused[0].reason)


def test_files_of_an_unknown_schema_are_void() -> None:
    assert grounds(decide(mismatched(schema_id=9))) == [Grounds.SCHEMA]


def test_a_slice_is_made_of_a_report_and_its_files() -> None:
    share = TableReport(
        table="shop.orders", uuid=uuid4(), epoch=EPOCH, schema_id=3, spec_id=2, events=1, files=1, rows=5
    )
    report = SliceReport(
        slice_id=UUID(int=1),
        attempt=UUID(int=2),
        window_id=UUID(int=3),
        spec_version="spec-1",
        spans=mismatched().spans,
        tables=(share,),
    )
    files = (data_file("file:///a", 5),)
    one = StagedSlice.of(report, "shop.orders", files)
    assert (one.slice_id, one.attempt, one.window_id) == (UUID(int=1), UUID(int=2), UUID(int=3))
    assert (one.epoch, one.rows, one.schema_id, one.spec_id, one.files) == (EPOCH, 5, 3, 2, files)
    assert one.coverage == report.coverage
    with pytest.raises(KeyError, match=r"shop\.other"):
        StagedSlice.of(report, "shop.other", files)


def spread(counted_as: str, rows: int, *counts: Counts) -> list[tuple[int, int, RowsPerOffset]]:
    """The ledger's provenance of a slice with one span of these counts per partition: first partition, rows, spread."""
    ranges = [(p, 0, c.total) for p, c in enumerate(counts)]
    counted = tuple(replace(s, counts=c) for s, c in zip(spans(*ranges), counts, strict=True))
    one = staged(*ranges, epoch=EPOCH, spans=counted, rows=rows, generation=1, counted_as=counted_as)
    return [(min(p.partition for p in e.coverage.parts), e.rows, e.per_offset) for e in one.provenance]


NONE, ONE, MIXED = RowsPerOffset.NONE, RowsPerOffset.ONE, RowsPerOffset.MIXED
HALVES = (Counts(landed=5), Counts(rejected=5))


@pytest.mark.parametrize(
    ("counted_as", "rows", "counts", "expected"),
    [
        ("landed", 5, HALVES, [(0, 5, ONE), (1, 0, NONE)]),
        ("rejected", 5, HALVES, [(0, 0, NONE), (1, 5, ONE)]),
        # As many rows as the other table has: they are of other records.
        ("landed", 6, (Counts(landed=5), Counts(rejected=6)), [(0, 6, MIXED)]),
        ("", 5, HALVES, [(0, 5, MIXED)]),
        # As many rows as offsets, of fewer records.
        ("landed", 10, (Counts(landed=9, rejected=1),), [(0, 10, MIXED)]),
        ("", 10, (Counts(landed=10),), [(0, 10, MIXED)]),
        ("landed", 10, (Counts(landed=10),), [(0, 10, ONE)]),
        ("", 0, HALVES, [(0, 0, NONE), (1, 0, NONE)]),
        ("landed", 0, HALVES, [(0, 0, NONE), (1, 0, NONE)]),
    ],
)
def test_rows_are_of_an_offset_each_only_where_the_counts_prove_it(
    counted_as: str, rows: int, counts: tuple[Counts, ...], expected: list[tuple[int, int, RowsPerOffset]]
) -> None:
    """A replay or backfill of some of these offsets trusts it."""
    assert spread(counted_as, rows, *counts) == expected
