# SPDX-License-Identifier: Apache-2.0
"""Accounting where rows are fewer or more than records: what is landed, filtered and rejected is counted in records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from airflow_provider_lakecommit.core.formats import FORMATS
from airflow_provider_lakecommit.core.model import Counts, ReadPosition, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import AccountingError
from airflow_provider_lakecommit.formats.decoder import Decoded, Refusal, Reject
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.spark import slices
from airflow_provider_lakecommit.spark.chunks import Run, chunk_of
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from airflow_provider_lakecommit.spark.slices import SliceOutcome
from tests.support.declared import changed_landing, landing_of
from tests.support.jobs import plan_of, slice_job
from tests.support.lines import LINES, SCHEMA, LineDecoder
from tests.support.slices import land_slice
from tests.support.targets import target_of

TABLE, DEAD = "shop.lines", "shop.lines_dead"
BAD = b"\xff"


@dataclass(frozen=True)
class Record:
    """A consumed message."""

    place: tuple[int, int]
    content: bytes | None

    def topic(self) -> str:
        return "lines"

    def partition(self) -> int:
        return self.place[0]

    def offset(self) -> int:
        return self.place[1]

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


class Reader:
    """Gives chunks that are there already, in place of those of a broker."""

    stopped = False
    chunks: Sequence[Any] = ()
    observed: Mapping[int, ReadPosition] = MappingProxyType({1: ReadPosition(offset=4, leader_epoch=3)})

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None: ...

    def read(self) -> Iterator[Any]:
        return iter(self.chunks)


#: Offsets and values of two spans that share a chunk: [10, 18) with a gap at 13, and [0, 4).
FIRST = {10: b"a\nb\nc", 11: b"", 12: None, 14: BAD, 15: b"d", 16: b"", 17: b"e\nf"}
SECOND = {0: BAD, 1: b"g\nh", 2: None, 3: b"\n\n"}
SPANS = (Span(SourcePartition("lines", 0), OffsetRange(10, 18)), Span(SourcePartition("lines", 1), OffsetRange(0, 4)))


@pytest.fixture
def job(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> WindowJob:
    monkeypatch.setitem(FORMATS, "lines", LINES)
    messages: list[Any] = [Record((p, o), v) for p, some in enumerate((FIRST, SECOND)) for o, v in some.items()]
    runs = [Run(0, 0, len(FIRST)), Run(1, len(FIRST), len(messages))]
    monkeypatch.setattr(Reader, "chunks", [chunk_of(messages, runs)])
    monkeypatch.setattr(slices, "SliceReader", Reader)
    landing = landing_of(
        name="lines",
        topics="lines",
        table=TABLE,
        format="lines",
        dead_letter_table=DEAD,
        dead_letter_max_ratio=1,
        metadata_columns=True,
    )
    targets = (
        target_of(catalog.create_table(TABLE, SCHEMA), TABLE),
        target_of(catalog.create_table(DEAD, DEAD_LETTER_SCHEMA), DEAD),
    )
    slice_ = Slice(slice_id=uuid4(), group=0, spans=SPANS, tables=landing.tables)
    return slice_job(landing, plan_of(landing, [slice_], targets))


def land(job: WindowJob) -> SliceOutcome:
    return land_slice(job, "", {"warehouse": job.plan.targets[0].location.rpartition("/shop/")[0]})


def changed(job: WindowJob, *, more: Sequence[Slice] = (), **of_slice: Any) -> WindowJob:
    """With another slice, and further ones."""
    return replace(job, plan=replace(job.plan, slices=(replace(job.plan.slices[0], **of_slice), *more)))


def rows(files: Sequence[DataFile], *columns: str) -> list[tuple[Any, ...]]:
    found = [pq.read_table(urlparse(f.file_path).path, partitioning=None).to_pylist() for f in files]
    return sorted(tuple(row[c] for c in columns) for some in found for row in some)


def test_records_are_accounted_for_by_what_became_of_them_and_rows_are_a_sum_of_their_own(job: WindowJob) -> None:
    closed = LineDecoder.closed

    outcome = land(job)

    assert [s.counts for s in outcome.report.spans] == [
        Counts(landed=3, rejected=1, filtered=3, gaps=1),
        Counts(landed=2, rejected=1, filtered=1),
    ]
    assert [s.position for s in outcome.report.spans] == [None, ReadPosition(offset=4, leader_epoch=3)]
    assert outcome.rows == {TABLE: 10, DEAD: 2}
    assert outcome.report.blocked is None
    assert LineDecoder.closed == closed + 1


def test_each_table_is_written_with_its_own_storage(job: WindowJob, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, str]] = []

    def file_io(properties: Mapping[str, str]) -> Any:
        given.append(properties)
        return slices_file_io(properties)

    slices_file_io = slices.file_io
    monkeypatch.setattr(slices, "file_io", file_io)
    own = {name: TableStorage(properties={"s3.session-token": f"of {name}"}) for name in (TABLE, DEAD)}
    part = replace(job.plan.slices[0], tables=(TABLE, DEAD))
    slices._SliceRun(job, Secrets(kafka={}, io={}, tables=own), part, uuid4())
    assert [p["s3.session-token"] for p in given] == [f"of {TABLE}", f"of {DEAD}"]


def test_every_row_and_every_dead_letter_has_the_offset_of_its_record(job: WindowJob) -> None:
    outcome = land(job)

    assert rows(outcome.files[TABLE], "kafka_partition", "kafka_offset", "line") == [
        *((0, 10, line) for line in "abc"),
        (0, 15, "d"),
        *((0, 17, line) for line in "ef"),
        *((1, 1, line) for line in "gh"),
        *((1, 3, "") for _ in range(2)),
    ]
    assert rows(outcome.files[DEAD], "partition", "offset", "value") == [(0, 14, BAD), (1, 0, BAD)]


def test_a_slice_of_which_no_record_gives_a_row_is_all_filtered(
    job: WindowJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = [Record((0, o), b"") for o in range(10, 18)]
    monkeypatch.setattr(Reader, "chunks", [chunk_of(messages, [Run(0, 0, 8)])])

    outcome = land(changed(job, spans=SPANS[:1]))

    assert [s.counts for s in outcome.report.spans] == [Counts(filtered=8)]
    assert (outcome.rows, outcome.files) == ({TABLE: 0, DEAD: 0}, {TABLE: [], DEAD: []})


@dataclass
class Chunks:
    """Chunks of ten bad records each, and how many were requested."""

    of: int
    read: int = 0

    def __iter__(self) -> Iterator[Any]:
        for n in range(self.of):
            self.read += 1
            bad: list[Any] = [Record((0, 10 * n + o), BAD) for o in range(10)]
            yield chunk_of(bad, [Run(0, 0, 10)])


def spoilt(job: WindowJob, records: int, **landing: Any) -> WindowJob:
    span = replace(SPANS[0], range=OffsetRange(0, records))
    return replace(changed(job, spans=(span,)), landing=changed_landing(job.landing, **landing))


@pytest.mark.parametrize(
    ("landing", "chunks"),
    [
        pytest.param({"dead_letter_max_records": 15}, 2, id="the count is exceeded"),
        pytest.param({"dead_letter_max_ratio": 0.2}, 3, id="so is the share, were all that is left good"),
        pytest.param({"dead_letter_table": None}, 1, id="no record may be rejected"),
    ],
)
def test_a_slice_is_read_no_further_once_it_is_surely_over_its_budget(
    job: WindowJob, monkeypatch: pytest.MonkeyPatch, landing: dict[str, Any], chunks: int
) -> None:
    request = Chunks(of=10)
    monkeypatch.setattr(Reader, "chunks", request)
    monkeypatch.setattr(slices, "BATCH_RECORDS", 10)
    tables = (TABLE,) if "dead_letter_table" in landing else (TABLE, DEAD)
    of = spoilt(job, 100, **{"dead_letter_max_records": 1000, **landing})

    outcome = land(changed(of, tables=tables))

    assert request.read == chunks
    assert [s.counts for s in outcome.report.spans] == [Counts(rejected=10 * chunks)]
    assert outcome.report.blocked is not None
    assert outcome.report.blocked.startswith(
        f"the value is not UTF-8 ({10 * chunks} of {10 * chunks} rejected records): slice "
    )
    assert "the rest was not read" in outcome.report.blocked
    assert outcome.report.rejects == {"wrong_value line": 10 * chunks}
    assert outcome.report.reject_reason
    assert outcome.files == {}


@pytest.mark.parametrize(("window", "read"), [(100, 3), (300, 7), (1000, 10)])
def test_a_slice_is_read_on_as_long_as_its_window_can_be_within_the_ratio(
    job: WindowJob, monkeypatch: pytest.MonkeyPatch, window: int, read: int
) -> None:
    request = Chunks(of=10)
    monkeypatch.setattr(Reader, "chunks", request)
    monkeypatch.setattr(slices, "BATCH_RECORDS", 10)

    one = spoilt(job, 100, dead_letter_max_ratio=0.2)

    outcome = land(changed(one, more=one.plan.slices * (window // 100 - 1)))

    assert (request.read, outcome.report.blocked is None) == (read, window == 1000)


def test_what_is_left_of_a_small_slice_is_read_and_counted(job: WindowJob, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Chunks(of=3)
    monkeypatch.setattr(Reader, "chunks", request)

    outcome = land(spoilt(job, 35, dead_letter_max_records=5))

    assert request.read == 3
    assert [s.counts for s in outcome.report.spans] == [Counts(rejected=30, gaps=5)]
    assert "the rest was not read" not in (outcome.report.blocked or "")


WRONG = {
    "a record is lost": lambda d: replace(d, filtered=d.filtered[1:]),
    "a record is landed and filtered": lambda d: replace(d, filtered=[0, *d.filtered]),
    "a record is landed and rejected": lambda d: replace(
        d, rejects=(Reject.of(0, Refusal("wrong_value", None, "no")), *d.rejects)
    ),
    "a row is of no record": lambda d: replace(d, records=d.records[1:]),
    "rows are fewer than records and none is named": lambda d: replace(d, records=None, rejects=(), filtered=()),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_add_up_is_never_published(wrong: str, job: WindowJob, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = LineDecoder.decode

    def other(self: LineDecoder, values: Sequence[bytes]) -> Decoded:
        decoded: Decoded = WRONG[wrong](decode(self, values))
        return decoded

    monkeypatch.setattr(LineDecoder, "decode", other)
    with pytest.raises(AccountingError, match=r"LC5049|LC5050"):
        land(job)
