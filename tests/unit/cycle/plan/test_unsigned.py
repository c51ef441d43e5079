# SPDX-License-Identifier: Apache-2.0
"""Reports that are not trusted here, as a signing key was changed or is another landing's: no epoch ends and no word
of a user is taken, where the source has no more what they are about, before a user was asked.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.commit.drain import drain
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.signing import KEY
from tests.fakes.kafka import FakeSource
from tests.fakes.lake import data_file
from tests.fakes.session import DATA, P0, P1, FakeLanding
from tests.support.declared import changed_landing

UNVERIFIED = r"unverified records of \S+ report orders\[0\] \[20, 40\)"


@pytest.fixture
def pending(landing: FakeLanding) -> FakeLanding:
    """[0, 20) is landed, [20, 40) is reported under another key, the source begins at 60."""
    landing.cycle("before")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("pending"))
    landing.source.ends = {P0: 80, P1: 10}
    landing.source.starts = {P0: 60}
    verify(landing, "its signature is of another key")
    return landing


def verify(landing: FakeLanding, doubt: str | None = None) -> None:
    landing.session.kafka = {KEY: "k" * 32}
    for partition, log in landing.control.logs.items():
        landing.control.logs[partition] = [r and replace(r, doubt=doubt) for r in log]


def rows_once_verified(landing: FakeLanding) -> int:
    verify(landing)
    drained = drain(landing.session, landing.run_identity("believed"), "they are believed")
    return 0 if drained is None else drained[1].rows


def drop_tag(landing: FakeLanding) -> None:
    landing.session.tables.load(DATA).manage_snapshots().remove_tag("lakecommit-main").commit()


def cut(landing: FakeLanding) -> None:
    """Others append twice, and the older of the two expires: the line from head to ledger is cut."""
    for n in range(2):
        table = landing.session.tables.load(DATA)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(f"file:///foreign/{n}.parquet", 1))
        if not n:
            expired = append.snapshot_id
    landing.session.tables.load(DATA).maintenance.expire_snapshots().by_id(expired).commit()


def test_a_tag_that_is_missing_ends_no_epoch(pending: FakeLanding) -> None:
    drop_tag(pending)
    with pytest.raises((SourceError, LedgerError), match=rf"{UNVERIFIED}.*LC6019"):
        pending.open("b")
    assert rows_once_verified(pending) == 20


def test_a_change_of_spec_that_voids_waits(pending: FakeLanding) -> None:
    other = {"on_spec_change": "void", "unknown_fields": "dead_letter"}
    pending.session.landing = changed_landing(pending.session.landing, **other)
    with pytest.raises(SourceError, match=rf"{UNVERIFIED}.*LC6019"):
        pending.open("b")
    assert rows_once_verified(pending) == 20


def test_an_asserted_ledger_keeps_its_epoch_where_it_is_what_the_newest_reported(pending: FakeLanding) -> None:
    cut(pending)
    assert_tables(pending.session, from_offsets(pending.session, {("orders", 0): 20, ("orders", 1): 10}, [DATA]))
    assert rows_once_verified(pending) == 20


def test_a_decision_on_a_ledger_in_order_needs_the_decision_that_gives_up(pending: FakeLanding) -> None:
    asserted = from_offsets(pending.session, {("orders", 1): 5}, [DATA])
    before = pending.snapshots()
    with pytest.raises(LedgerError, match="LC7009"):
        assert_tables(pending.session, asserted)
    assert pending.snapshots() == before
    assert_tables(pending.session, asserted, give_up_reported=True)


def test_a_ledger_that_is_cut_is_not_set_anew_over_it(pending: FakeLanding) -> None:
    cut(pending)
    ends = {("orders", 0): 60, ("orders", 1): 10}
    with pytest.raises(LedgerError, match="LC7020"):
        ledger_init(pending.session, ends)
    ledger_init(pending.session, ends, give_up_reported=True)


def test_a_landing_with_another_key_does_not_end_the_epoch_of_this_one(pending: FakeLanding) -> None:
    theirs = SourcePartition("returns", 0, "topic-2")
    pending.source.others.append(FakeSource({theirs: 5}, clock=pending.clock))
    pending.session = replace(pending.connect(name="returns", topics="returns"), source=pending.source.of(("returns",)))
    pending.session.kafka = {KEY: "k" * 32}
    pending.cycle("theirs")
    table = pending.session.tables.load(DATA)
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[-2].snapshot_id).commit()
    with pytest.raises(LedgerError, match="LC6001"):
        pending.open("again")


def test_what_the_source_still_has_is_in_no_danger(pending: FakeLanding) -> None:
    pending.source.starts = {}
    drop_tag(pending)
    pending.cycle("again")
    assert sum(int(s["lakecommit.rows"]) for s in pending.snapshots()) == 90
