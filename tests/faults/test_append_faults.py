# SPDX-License-Identifier: Apache-2.0
"""Commits that go wrong: whatever the catalog answers, every slice is in the table once, or is known not to be."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.exceptions import CommitFailedException

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError
from airflow_provider_lakecommit.iceberg.ledger.append import PublishOutcome, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState, landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table, refresh_ledger, renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import Grounds
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage_untagged
from airflow_provider_lakecommit.iceberg.ledger.swap import Swapped, compare_and_swap
from tests.fakes.catalog import Fault
from tests.fakes.lake import Lake, coverage, data_file, section, staged
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.faults

REAL = RetryPolicy(seconds=60, first_wait=0.01, longest_wait=0.2)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create()
    return made


@pytest.fixture
def ours(lake: Lake) -> LedgerSection:
    return lake.join()


def publish_and_roll_back(lake: Lake, ours: LedgerSection) -> None:
    head = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.roll_back(head)


def appended(lake: Lake) -> int:
    """Landing snapshots with rows."""
    return sum(1 for r in landing_snapshots(lake.load().metadata) if r.rows)


@pytest.mark.parametrize("fault", [Fault.LYING_CONFLICT, Fault.LOST_ANSWER])
def test_a_commit_that_was_applied_in_secret_is_recognised_as_ours(
    lake: Lake, ours: LedgerSection, fault: Fault
) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(fault)
    outcome = lake.publish(request)
    assert outcome.published == request.slices
    assert outcome.requests_sent == 1
    assert outcome.snapshot_id == lake.load().metadata.current_snapshot_id
    assert outcome.token == next(landing_snapshots(lake.load().metadata)).token
    assert (lake.rows(), appended(lake)) == (10, 1)


@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.CONFLICT, Fault.FALSE_SUCCESS])
def test_a_commit_that_was_not_applied_is_sent_again(lake: Lake, ours: LedgerSection, fault: Fault) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.extend([fault, fault])
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 3)
    assert (lake.rows(), appended(lake)) == (10, 1)
    assert lake.clock.slept == 2


def test_a_secret_success_under_a_foreign_append_is_recognised(lake: Lake, ours: LedgerSection) -> None:
    lake.catalog.faults.append(Fault.LOST_ANSWER)
    lake.clock.during = lambda: [None, lake.append_foreign()][0]
    outcome = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    assert outcome.published
    assert outcome.state.foreign_since == 1
    assert lake.rows() == 11


def test_a_foreign_append_between_check_and_request_costs_one_request(lake: Lake, ours: LedgerSection) -> None:
    def interfere() -> None:
        lake.catalog.before_commit = lambda: None
        lake.append_foreign()

    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.before_commit = interfere
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 2)
    assert lake.rows() == 11


def test_an_outage_after_the_request_is_waited_out(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.AWAY_AFTER)

    def back_after_a_while() -> None:
        lake.catalog.away = lake.clock.now < 30

    lake.clock.during = back_after_a_while
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 1)
    assert lake.rows() == 10


def test_an_outage_that_lasts_leaves_the_outcome_unknown_and_nothing_deleted(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.AWAY_AFTER)
    with pytest.raises(CommitUnknownError, match=r"1.*request\(s\).*shop\.orders.*LC3019"):
        lake.publish(request, seconds=60)
    assert lake.clock.now == pytest.approx(60)
    assert lake.rows() == 10
    lake.catalog.away = False
    lake.clock.during = lambda: None
    assert lake.publish(request).already == request.slices
    assert (lake.rows(), appended(lake)) == (10, 1)


def test_an_outage_before_the_request_is_a_catalog_error(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.away = True
    with pytest.raises(CatalogError, match=r"connection refused.*LC3361"):
        lake.publish(request)
    assert lake.clock.slept == 0
    assert lake.catalog.commits == 1, "the origin's"


def test_storage_that_cannot_be_written_is_a_catalog_error(
    lake: Lake, ours: LedgerSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFile.create", full)
    with pytest.raises(CatalogError, match=r"shop\.orders.*LC3030"):
        lake.publish(request)
    assert lake.catalog.commits == 1, "the origin's"


def test_storage_that_fails_after_a_request_is_waited_out(
    lake: Lake, ours: LedgerSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.NOT_APPLIED)

    def break_storage_for_a_while() -> None:
        monkeypatch.undo()
        if lake.clock.slept == 1:
            monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFile.create", full)

    lake.clock.during = break_storage_for_a_while
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 2)
    assert lake.clock.slept == 2


def test_storage_that_fails_after_a_foreign_request_is_waited_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.catalog.faults.append(Fault.NOT_APPLIED)

    def break_storage_for_a_while() -> None:
        monkeypatch.undo()
        if lake.clock.slept == 1:
            monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFile.create", full)

    lake.clock.during = break_storage_for_a_while
    change: Change[None] = Change(summary={"mine": "1"}, why=None)
    done = compare_and_swap(
        lake.tables, lake.name, "main", lambda _: change, lake.clock.retry_policy(), staging=stage_untagged
    )
    assert (done.landed, done.requests, done.snapshot_id) == (change, 2, lake.load().metadata.current_snapshot_id)
    assert lake.clock.slept == 2


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_a_foreign_request_whose_answer_is_lost_is_recognised(lake: Lake, branch: str) -> None:
    head = lake.append_foreign()
    lake.load().manage_snapshots().create_branch(head, "audit").commit()
    lake.catalog.faults.append(Fault.LOST_ANSWER)
    change: Change[None] = Change(summary={"mine": "1"}, why=None)
    done = compare_and_swap(
        lake.tables, lake.name, branch, lambda _: change, lake.clock.retry_policy(), staging=stage_untagged
    )
    assert (done.landed, done.requests) == (change, 1)
    assert {name: ref.snapshot_id for name, ref in lake.load().metadata.refs.items()} == {
        "main": head,
        "audit": head,
        branch: done.snapshot_id,
    }


def foreign_change(lake: Lake, *, files: int = 0) -> tuple[Change[None], Swapped[None]]:
    """What a rescue appends, once per look that does not show it."""
    added = tuple(data_file(f"file:///mine/{n}.parquet", 1) for n in range(files))
    change: Change[None] = Change(summary={"mine": "1"}, why=None, files=added)
    done = compare_and_swap(
        lake.tables, lake.name, "main", lambda _: change, lake.clock.retry_policy(), staging=stage_untagged
    )
    return change, done


@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.CONFLICT, Fault.FALSE_SUCCESS])
def test_a_foreign_request_that_was_not_applied_is_sent_again_and_is_there_once(lake: Lake, fault: Fault) -> None:
    """An answer that does not show the snapshot is none, for files of a connector as for slices."""
    lake.catalog.faults.extend([fault, fault])
    change, done = foreign_change(lake, files=2)
    assert (done.landed, done.requests, lake.clock.slept) == (change, 3, 2)
    assert done.snapshot_id == lake.load().metadata.current_snapshot_id
    assert sorted(lake.paths()) == ["file:///mine/0.parquet", "file:///mine/1.parquet"]


def test_an_answer_that_shows_a_foreign_snapshot_is_its_proof(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No further look is needed, so a catalog that goes away right after its answer makes no unknown outcome."""
    reads = []
    load = lake.tables.load
    monkeypatch.setattr(lake.tables, "load", lambda name: [reads.append(name), load(name)][1])
    change, done = foreign_change(lake, files=1)
    assert (done.landed, done.requests, reads) == (change, 1, [lake.name])
    assert done.metadata.current_snapshot_id == done.snapshot_id


def test_a_foreign_snapshot_that_was_rolled_back_before_it_was_observed_has_not_landed(lake: Lake) -> None:
    """Only what is on the branch is there; what a user took off it is decided about anew, by whoever decides."""
    head = lake.append_foreign()
    lake.catalog.faults.append(Fault.LOST_ANSWER)
    removed: list[int] = []

    def roll_back() -> None:
        removed.append(lake.load().metadata.current_snapshot_id or 0)
        lake.roll_back(head)

    lake.clock.during = roll_back
    change, done = foreign_change(lake, files=1)
    assert (done.landed, done.requests) == (change, 2)
    assert done.snapshot_id not in (None, *removed)
    metadata = lake.load().metadata
    assert {removed[0], done.snapshot_id} < {s.snapshot_id for s in metadata.snapshots}
    assert lake.paths().count("file:///mine/0.parquet") == 1


def test_the_manifests_of_a_foreign_request_that_lost_stay(lake: Lake) -> None:
    """Nothing tells that it cannot be applied any more: it may still be on its way."""
    before = lake.metadata_files("*.avro")
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    _, done = foreign_change(lake, files=1)
    assert len(lake.metadata_files("*.avro") - before) == 4, "a manifest and a manifest list of each request"
    with pytest.raises(CommitFailedException):
        lake.catalog.deliver()
    assert lake.load().metadata.current_snapshot_id == done.snapshot_id
    assert lake.paths() == ["file:///mine/0.parquet"]


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_requests_are_bounded(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.extend([Fault.NOT_APPLIED] * 9)
    with pytest.raises(CommitUnknownError, match=r"4.*request\(s\).*500:.*LC3041"):
        lake.publish(request, requests=4)
    assert lake.rows() == 0


def test_a_request_that_arrives_late_cannot_double_what_was_sent_again(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 2)
    with pytest.raises(Exception, match="has changed"):
        lake.catalog.deliver()
    assert (lake.rows(), appended(lake)) == (10, 1)


def test_a_request_that_arrives_before_the_second_one_is_the_one(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.ON_ITS_WAY)

    def deliver() -> None:
        if lake.catalog.on_its_way:
            lake.catalog.before_commit = lambda: None
            lake.catalog.deliver()

    lake.clock.during = lambda: setattr(lake.catalog, "before_commit", deliver)
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == (request.slices, 2)
    assert (lake.rows(), appended(lake)) == (10, 1)


def test_a_late_request_cannot_land_on_a_head_that_came_back(lake: Lake, ours: LedgerSection) -> None:
    """Published, then rolled back to the head that a request on its way was made for: it must not land there."""
    head = lake.load().metadata.current_snapshot_id
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.load().manage_snapshots().rollback_to_snapshot(head).commit()
    with pytest.raises(Exception, match="lakecommit-main has changed"):
        lake.catalog.deliver()
    assert lake.rows() == 0
    assert lake.state().condition is Condition.ROLLED_BACK


def test_files_of_a_lost_attempt_stay_until_it_cannot_land(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    before = lake.metadata_files("*.avro")
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    with pytest.raises(CommitUnknownError):
        lake.publish(request, requests=1)
    left = lake.metadata_files("*.avro") - before
    assert len(left) == 2, "one manifest and one manifest list"
    lake.catalog.deliver()
    assert lake.rows() == 10
    assert lake.publish(request).already == request.slices


def test_files_stay_while_a_request_could_land_though_the_call_has_ended(lake: Lake, ours: LedgerSection) -> None:
    """Rolled back while the request is on its way, so the call ends; then the branch is put back where it was."""
    first = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    head = lake.load().metadata.current_snapshot_id
    request = lake.request(staged((0, 10, 20), epoch=ours.epoch))
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    lake.clock.during = lambda: lake.load().manage_snapshots().rollback_to_snapshot(first).commit()
    assert [r.grounds for r in lake.publish(request).refused] == [Grounds.EPOCH]
    lake.load().manage_snapshots().set_current_snapshot(head).commit()
    lake.catalog.deliver()
    assert lake.rows() == 20
    assert lake.publish(request).already == request.slices


def test_files_of_an_attempt_that_cannot_land_any_more_are_removed(lake: Lake, ours: LedgerSection) -> None:
    before = lake.metadata_files("*.avro")
    lake.catalog.faults.extend([Fault.NOT_APPLIED, Fault.CONFLICT])
    outcome = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    assert outcome.requests_sent == 3
    assert len(lake.metadata_files("*.avro") - before) == 2
    assert lake.rows() == 10


def test_files_of_an_attempt_that_landed_in_secret_stay(lake: Lake, ours: LedgerSection) -> None:
    before = lake.metadata_files("*.avro")
    lake.catalog.faults.append(Fault.LYING_CONFLICT)
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    assert len(lake.metadata_files("*.avro") - before) == 2
    assert lake.rows() == 10


def test_a_rollback_behind_our_back_publishes_nothing(lake: Lake, ours: LedgerSection) -> None:
    """Applied in secret, then rolled back before we look: the slice is void, not published and not sent again."""
    head = lake.load().metadata.current_snapshot_id
    lake.catalog.faults.append(Fault.LOST_ANSWER)
    lake.clock.during = lambda: lake.load().manage_snapshots().rollback_to_snapshot(head).commit()
    outcome = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    assert (outcome.published, outcome.snapshot_id) == ((), None)
    assert [r.grounds for r in outcome.refused] == [Grounds.EPOCH]
    assert (lake.rows(), lake.rows("lakecommit-main")) == (0, 10), (
        "the snapshot is there still, for a person to look at"
    )


def test_an_interrupt_passes_through_and_the_next_attempt_finds_out(lake: Lake, ours: LedgerSection) -> None:
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))

    def interrupt() -> None:
        lake.catalog.before_commit = lambda: None
        raise KeyboardInterrupt

    lake.catalog.before_commit = interrupt
    with pytest.raises(KeyboardInterrupt):
        lake.publish(request)
    assert lake.publish(request).published == request.slices
    assert lake.rows() == 10


@pytest.mark.parametrize("fault", [Fault.LYING_CONFLICT, Fault.LOST_ANSWER, Fault.NOT_APPLIED, Fault.CONFLICT])
def test_an_initial_entry_is_made_once_whatever_is_answered(lake: Lake, fault: Fault) -> None:
    ours = section()
    lake.catalog.faults.append(fault)
    assert lake.join(ours) == ours
    assert len(list(landing_snapshots(lake.load().metadata))) == 1


@pytest.mark.parametrize("fault", [Fault.LYING_CONFLICT, Fault.LOST_ANSWER, Fault.NOT_APPLIED])
def test_a_new_epoch_is_made_once_whatever_is_answered(lake: Lake, ours: LedgerSection, fault: Fault) -> None:
    publish_and_roll_back(lake, ours)
    lake.catalog.faults.append(fault)
    state = renew_epochs(lake.tables, lake.name, "orders", "live", retry_policy=lake.clock.retry_policy())
    assert len(list(landing_snapshots(lake.load().metadata))) == 2
    assert lake.state().sections == state.sections != (ours,)


def test_a_ledger_is_carried_once_whatever_is_answered(lake: Lake, ours: LedgerSection) -> None:
    lake.catalog.faults.append(Fault.LYING_CONFLICT)
    refresh_ledger(lake.tables, lake.name, "orders", "live")
    assert len(list(landing_snapshots(lake.load().metadata))) == 2


def test_an_epoch_that_another_writer_renewed_meanwhile_is_new_enough(lake: Lake, ours: LedgerSection) -> None:
    publish_and_roll_back(lake, ours)
    other = Lake(lake.path)
    lake.catalog.faults.append(Fault.CONFLICT)

    def renew() -> None:
        renew_epochs(other.tables, other.name, "orders", "live")

    lake.clock.during = renew
    state = renew_epochs(lake.tables, lake.name, "orders", "live", retry_policy=lake.clock.retry_policy())
    assert state.sections == other.state().sections != (ours,)
    assert len(list(landing_snapshots(lake.load().metadata))) == 2


class Racers:
    """Two processes' worth of committers on one table, released together at their first commit request."""

    def __init__(self, path: Path) -> None:
        self.lakes = (Lake(path), Lake(path))
        barrier = threading.Barrier(2, timeout=PATIENCE)
        for lake in self.lakes:
            lake.catalog.before_commit = self._once(lake, barrier)

    @staticmethod
    def _once(lake: Lake, barrier: threading.Barrier):
        def wait() -> None:
            lake.catalog.before_commit = lambda: None
            barrier.wait()

        return wait

    def run(self, *works) -> list:
        results: dict[int, object] = {}

        def work(n: int) -> None:
            try:
                results[n] = works[n](self.lakes[n])
            except BaseException as e:
                results[n] = e

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(works))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(timeout=PATIENCE)
        return [results[n] for n in range(len(works))]


def publisher(*slices):
    def run(lake: Lake) -> PublishOutcome:
        return publish(lake.tables, lake.request(*slices), retry_policy=REAL)

    return run


def test_of_two_that_race_with_the_same_slice_one_publishes_it(lake: Lake, ours: LedgerSection, tmp_path: Path) -> None:
    one = staged((0, 0, 10), epoch=ours.epoch)
    results = Racers(tmp_path).run(publisher(one), publisher(one))
    assert sorted(len(r.published) for r in results) == [0, 1]
    assert sorted(len(r.already) for r in results) == [0, 1]
    assert (lake.rows(), appended(lake)) == (10, 1)


def test_of_two_that_race_with_overlapping_slices_one_is_refused(
    lake: Lake, ours: LedgerSection, tmp_path: Path
) -> None:
    long, short = staged((0, 0, 10), epoch=ours.epoch), staged((0, 0, 6), epoch=ours.epoch)
    results = Racers(tmp_path).run(publisher(long), publisher(short))
    winner = next(r for r in results if r.published)
    assert sum(len(r.published) for r in results) == 1
    assert lake.rows() == sum(s.rows for s in winner.published)
    other = next(r for r in results if not r.published)
    assert other.already or [r.grounds for r in other.refused] == [Grounds.OVERLAP]


def test_two_that_race_with_disjoint_slices_both_publish(lake: Lake, ours: LedgerSection, tmp_path: Path) -> None:
    a, b = staged((0, 0, 10), epoch=ours.epoch), staged((1, 0, 5), epoch=ours.epoch)
    results = Racers(tmp_path).run(publisher(a), publisher(b))
    assert [r.published for r in results] == [(a,), (b,)]
    assert lake.state().covered() == coverage((0, 0, 10), (1, 0, 5))
    assert (lake.rows(), appended(lake)) == (15, 2)


def test_of_two_origins_that_race_one_is_made_and_both_read_it(lake: Lake, tmp_path: Path) -> None:
    def join(one: Lake) -> LedgerState:
        return join_table(one.tables, one.name, section(epoch=uuid4()), retry_policy=REAL)

    results = Racers(tmp_path).run(join, join)
    assert results[0].sections == results[1].sections == lake.state().sections
    assert len(list(landing_snapshots(lake.load().metadata))) == 1


def test_a_rollback_that_two_find_gets_one_new_epoch(lake: Lake, ours: LedgerSection, tmp_path: Path) -> None:
    publish_and_roll_back(lake, ours)

    def renew(one: Lake) -> LedgerState:
        return renew_epochs(one.tables, one.name, "orders", "live", retry_policy=REAL)

    results = Racers(tmp_path).run(renew, renew)
    assert results[0].sections == results[1].sections == lake.state().sections
    assert lake.state().condition is Condition.PRESENT
