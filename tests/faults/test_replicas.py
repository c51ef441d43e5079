# SPDX-License-Identifier: Apache-2.0
"""The same slices done by several replicas: whoever is first, whoever dies and whoever is reported to end, each record
is in the table once, what is redundant is counted and in no table, and nobody shuts another one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.early_end import end_cycle, end_job
from airflow_provider_lakecommit.exceptions import FencedError
from airflow_provider_lakecommit.spark import watches
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.read import SliceReader
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.spark.watches import EndWatch, ReplicaWatch
from tests.support.groups import group_job, group_result
from tests.support.steps import Step, check_verified, hung
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
EVERY = Counter(range(120))


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    """Three slices of 40 records, which two replicas do."""
    made = make_world(partitions=1, dead_letter_table=None, replicas=2)
    produce(made.landing.topics, records(0, 120))
    return made


def jobs_of(world: World, opened: Opened) -> tuple[WindowJob, WindowJob]:
    with world.session() as session:
        job = group_job(world.landing, session.control, opened.groups[0], "test")
    assert job is not None
    assert (job.replica, job.replicas) == (0, 2)
    return job.begun(), replace(job, replica=1).begun()


def do(world: World, job: WindowJob, index: int = 0) -> SliceResult:
    return run_task(job, world.secrets, index)


def files_of(world: World) -> set[str]:
    """All data files on disk."""
    folder = Path(world.catalog["warehouse"].removeprefix("file://"))
    return {p.name for p in folder.rglob("*.parquet")}


def in_table(world: World) -> set[str]:
    with world.session() as session:
        paths = session.tables.load(world.landing.table).inspect.files()["file_path"].to_pylist()
    return {Path(path).name for path in paths}


def finish(world: World, opened: Opened, redundant: int) -> None:
    """Close the cycle, go on until nothing is left, and count."""
    closed = world.close("a", opened)
    assert closed.redundant == redundant
    assert sum(p.counts.landed for p in closed.published) == sum(p.rows for p in closed.published)
    world.settle()
    world.check(EVERY)
    check_verified(world)


class TestBothAtOnce:
    @pytest.mark.heavy
    def test_one_that_comes_later_reads_nothing_and_leaves_nothing(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        assert [do(world, replica, i).status for i in range(3)] == [SliceStatus.DONE] * 3
        files = files_of(world)
        monkeypatch.setattr(SliceReader, "__init__", lambda *_, **__: pytest.fail("it reads"))
        assert [do(world, original, i).status for i in range(3)] == [SliceStatus.REPORTED] * 3
        monkeypatch.undo()
        assert files_of(world) == files
        finish(world, opened, redundant=0)
        assert files_of(world) == in_table(world)

    @pytest.mark.heavy
    def test_one_that_is_overtaken_ends_before_it_reports_and_deletes_its_files(self, world: World) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        results: list[SliceResult] = []
        begun: list[None] = []
        real = ReplicaWatch.check

        def overtaken(self: ReplicaWatch, spans: object, *, at_once: bool = False) -> None:
            if at_once and not begun:
                begun.append(None)
                results.append(do(world, replica))
            real(self, spans, at_once=at_once)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaWatch, "check", overtaken)
            late = do(world, original)
        assert (results[0].status, late.status) == (SliceStatus.DONE, SliceStatus.REPORTED)
        for index in (1, 2):
            do(world, original, index)
        finish(world, opened, redundant=0)
        assert files_of(world) == in_table(world), "what was given up is gone"

    def test_two_that_report_in_the_same_moment_fence_no_other_and_count_once(self, world: World) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        lines: list[SliceStatus] = []
        with hung(Step.UNREPORTED, lambda: lines.append(do(world, replica).status)):
            assert do(world, original).status is SliceStatus.DONE
        assert lines == [SliceStatus.DONE]
        for index in (1, 2):
            assert do(world, original, index).status is SliceStatus.DONE
        finish(world, opened, redundant=1)
        assert len(files_of(world) - in_table(world)) > 0, "those of the second report"

    @pytest.mark.heavy
    def test_a_retry_of_a_replica_shuts_out_its_own_dead_and_not_the_original(self, world: World) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        assert original.transactional_id(0) != replica.transactional_id(0)
        lines: list[SliceStatus] = []
        with (
            ControlTopic(replica.control_topic, world.kafka) as control,
            control.writer(replica.transactional_id(0), replica.control_partition) as dead,
        ):
            dead.open()
            with hung(Step.UNREPORTED, lambda: lines.append(do(world, replica.begun()).status)):
                assert do(world, original).status is SliceStatus.DONE
            with pytest.raises(FencedError):
                dead.send([(b"", b"", [])])
        assert lines == [SliceStatus.DONE]
        for index in (1, 2):
            do(world, replica, index)
        finish(world, opened, redundant=1)


class TestRejects:
    @pytest.mark.heavy
    def test_rejects_are_in_the_dead_letters_once_and_count_once(self, make_world: Make, produce: Produce) -> None:
        world = make_world(partitions=1, replicas=2, dead_letter_max_ratio=1.0)
        produce(world.landing.topics, [*records(0, 39), ("x", "no json")])
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        lines: list[SliceStatus] = []
        with hung(Step.UNREPORTED, lambda: lines.append(do(world, replica).status)):
            do(world, original)
        closed = world.close("a", opened)
        assert (sum(closed.rejects.values()), closed.redundant) == (1, 1)
        world.settle()
        world.check(Counter(range(39)))
        assert len(world.rows(world.landing.dead_letter_table)) == 1
        check_verified(world)

    @pytest.mark.heavy
    def test_a_range_that_both_find_over_budget_is_blocked_once_and_failures_count_for_one_cycle(
        self, make_world: Make, produce: Produce
    ) -> None:
        world = make_world(partitions=1, dead_letter_table=None, replicas=2)
        produce(world.landing.topics, [*records(0, 40), ("x", "no json"), *records(40, 9)])
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        lines: list[SliceStatus] = []
        with hung(Step.UNREPORTED, lambda: lines.append(do(world, replica, 1).status)):
            assert do(world, original, 1).status is SliceStatus.BLOCKED
        assert lines == [SliceStatus.BLOCKED]
        do(world, original)
        closed = world.close("a", opened)
        assert len(closed.blocked) == 1
        world.check(Counter(range(40)))

    @pytest.mark.heavy
    def test_one_whose_executor_cannot_do_it_costs_nothing(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        from airflow_provider_lakecommit.formats.decode_json import JsonDecoder

        real = JsonDecoder.decode
        monkeypatch.setattr(JsonDecoder, "decode", lambda *_: 1 // 0)
        assert do(world, original).status is SliceStatus.FAILED
        monkeypatch.setattr(JsonDecoder, "decode", real)
        assert [do(world, replica, i).status for i in range(3)] == [SliceStatus.DONE] * 3
        with world.session() as session:
            result = group_result(world.landing, session.control, opened.groups[0])
        assert (result.left, result.causes) == ((), ())
        finish(world, opened, redundant=0)


class TestEndingEarly:
    @pytest.fixture(autouse=True)
    def checks_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watches, "FIRST_CHECK", 0.0)
        monkeypatch.setattr(watches, "CHECK_INTERVAL", 0.0)
        # Brokers on a busy machine may answer late.
        monkeypatch.setattr(watches, "AWAY", 0.0)
        watches._newest.clear()

    @pytest.fixture
    def big(self, make_world: Make, produce: Produce) -> World:
        """One slice of more chunks than one."""
        made = make_world(partitions=1, dead_letter_table=None, replicas=2, slice_records=20_000)
        produce(made.landing.topics, records(0, 20_000))
        return made

    def in_the_midst(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        """Act once, when some records of the slice in hand were given."""
        real, done, checks = EndWatch.__call__, list[object](), [0]

        def watched(self: EndWatch) -> bool:
            checks[0] += 1
            if checks[0] > 3 and not done:
                done.append(None)
                done.append(act())
            return real(self)

        monkeypatch.setattr(EndWatch, "__call__", watched)

    @pytest.mark.heavy
    def test_a_replica_that_is_instructed_to_end_gives_its_slice_up_and_the_original_does_it(
        self, big: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = big.open("a")
        original, replica = jobs_of(big, opened)
        with big.session() as session, pytest.MonkeyPatch.context() as patch:
            self.in_the_midst(patch, lambda: end_job(session.control, replica, "told to stop"))
            assert do(big, replica).status is SliceStatus.AGAIN
        assert files_of(big) == set()
        assert do(big, original).status is SliceStatus.DONE
        closed = big.close("a", opened)
        assert (closed.rows, closed.redundant) == (20_000, 0)
        big.check(Counter(range(20_000)))
        check_verified(big)

    @pytest.mark.heavy
    def test_what_an_original_reports_when_it_ends_is_not_read_again_by_its_replica(self, big: World) -> None:
        """The replica is in mid-slice when the original reports a part of it."""
        opened = big.open("a")
        original, replica = jobs_of(big, opened)
        first: list[SliceResult] = []

        def original_ends() -> None:
            with big.session() as session, pytest.MonkeyPatch.context() as patch:
                self.in_the_midst(patch, lambda: end_job(session.control, original, "told to stop"))
                first.append(do(big, original))

        with pytest.MonkeyPatch.context() as patch:
            self.in_the_midst(patch, original_ends)
            second = do(big, replica)
        assert first[0].status is SliceStatus.AGAIN
        assert 0 < first[0].records < 20_000
        assert second.status is SliceStatus.DONE
        assert second.records == 20_000 - first[0].records
        closed = big.close("a", opened)
        assert (closed.rows, closed.redundant, closed.missing) == (20_000, 0, ())
        big.check(Counter(range(20_000)))
        assert files_of(big) == in_table(big)
        check_verified(big)

    def test_publish_now_ends_both_and_doubles_nothing(self, big: World) -> None:
        opened = big.open("a")
        original, replica = jobs_of(big, opened)
        with big.session() as session, pytest.MonkeyPatch.context() as patch:
            self.in_the_midst(patch, lambda: end_cycle(session.control, big.landing, opened.ticket, "published now"))
            assert do(big, original).status is SliceStatus.AGAIN
        assert do(big, replica).status is SliceStatus.AGAIN
        closed = big.close("a", opened)
        assert 0 < closed.rows < 20_000
        big.settle()
        big.check(Counter(range(20_000)))
        check_verified(big)

    @pytest.mark.heavy
    @pytest.mark.parametrize("longer_first", [True, False], ids=["the longer one first", "the shorter one first"])
    def test_of_parts_that_overlap_the_first_counts_and_the_rest_is_read_again(
        self, big: World, *, longer_first: bool
    ) -> None:
        """As two originals make them of which one is a zombie that nobody could shut out."""
        opened = big.open("a")
        original, _ = jobs_of(big, opened)
        parts = [7_000, 3_000] if longer_first else [3_000, 7_000]
        work = original.plan.slices[0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaWatch, "_read_reports", lambda _: None)
            for number, end in enumerate(parts):
                span = replace(work.spans[0], range=replace(work.spans[0].range, end=end))
                own = slice_id(original.plan.window_id, (span,), work.tables)
                part = replace(work, spans=(span,), slice_id=own)
                plan = replace(original.plan, slices=(part,))
                assert do(big, replace(original, plan=plan, replica=number)).status is SliceStatus.DONE
            # And all of it too.
            assert do(big, replace(original, replica=2)).status is SliceStatus.DONE
        with big.session() as session:
            result = group_result(big.landing, session.control, opened.groups[0])
        assert Coverage.union(s.coverage for s in result.left) == work.coverage - Coverage.union(
            s.coverage for s in [replace(part, spans=(replace(span, range=replace(span.range, end=parts[0])),))]
        )
        closed = big.close("a", opened)
        assert (closed.rows, closed.redundant) == (parts[0], 2)
        big.settle()
        big.check(Counter(range(20_000)))
        check_verified(big)


class TestVerifiedRecords:
    def test_an_unplanned_report_ends_no_work(self, world: World) -> None:
        opened = world.open("a")
        original, replica = jobs_of(world, opened)
        other = replace(replica, commit_id=uuid4())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaWatch, "_read_reports", lambda _: None)
            do(world, other)
        assert [do(world, original, i).status for i in range(3)] == [SliceStatus.DONE] * 3
        finish(world, opened, redundant=0)

    @pytest.mark.heavy
    def test_one_alone_never_checks(self, make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
        world = make_world(partitions=1, dead_letter_table=None)
        produce(world.landing.topics, records(0, 120))
        monkeypatch.setattr(ReplicaWatch, "_read_reports", lambda _: pytest.fail("it looks"))
        opened = world.open("a")
        assert [r.status for r in world.write(opened)] == [SliceStatus.DONE] * 3
        with world.session() as session:
            job = group_job(world.landing, session.control, opened.groups[0], "test")
        assert job is None
        world.close("a", opened)
        world.check(EVERY)
