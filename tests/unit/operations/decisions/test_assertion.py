# SPDX-License-Identifier: Apache-2.0
"""A user's decision on what a table holds: what it would change, what cannot be true, and that it is written once."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.decisions.assertion import (
    assert_tables,
    from_log,
    from_offsets,
    from_snapshot,
)
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from tests.fakes.lake import SCHEMA, data_file
from tests.fakes.session import DATA, P0, P1, FakeLanding
from tests.support.story import coverage


def test_a_table_in_order_is_asserted_only_by_its_name(landing: FakeLanding) -> None:
    landing.cycle()
    with pytest.raises(LedgerError, match="LC7010"):
        from_log(landing.session)
    (one,) = from_log(landing.session, [DATA]).tables
    assert not one.again
    assert not one.never_read


def test_the_log_reports_what_was_published(landing: FakeLanding) -> None:
    landing.cycle()
    (one,) = from_log(landing.session, [DATA]).tables
    assert one.section.covered == coverage([(P0, 0, 20), (P1, 0, 10)])
    assert one.source == "the log of control"


def test_offsets_show_what_is_read_again_and_what_never(landing: FakeLanding) -> None:
    landing.cycle()
    landing.source.ends = {P0: 40, P1: 10}
    (one,) = from_offsets(landing.session, {("orders", 0): 30, ("orders", 1): 5}, [DATA]).tables
    assert one.again == coverage([(P1, 5, 10)])
    assert one.never_read == coverage([(P0, 20, 30)])


def test_what_is_reported_and_not_published_is_named_apart(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 20}
    landing.report(landing.open("b"))
    asserted = from_offsets(landing.session, {("orders", 0): 30}, [DATA])
    (one,) = asserted.tables
    assert not one.never_read
    assert one.unpublished == coverage([(P0, 20, 30)])
    assert one.voided == coverage([(P0, 30, 40), (P1, 10, 20)])
    message = "\n".join(asserted.lines())
    assert "is REPORTED and not published, and never will be: orders[0] [20, 30): lost if" in message
    assert "voids reported slices, so they are read again: orders[0] [30, 40)" in message
    assert "never read" not in message
    assert one.to_dict()["reported"] == {"orders[0]": [[20, 40]], "orders[1]": [[10, 20]]}
    assert one.to_dict()["never_read"] == {}


@pytest.mark.heavy
def test_a_decision_on_what_is_reported_and_on_what_is_not_reports_both(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 30, P1: 10}
    landing.report(landing.open("b"))
    landing.source.ends = {P0: 50, P1: 10}
    (one,) = from_offsets(landing.session, {("orders", 0): 40}, [DATA]).tables
    assert one.unpublished == coverage([(P0, 20, 30)])
    assert one.never_read == coverage([(P0, 30, 40)])
    assert not one.voided


def test_it_is_written_under_a_new_epoch_and_the_next_plan_goes_on_there(landing: FakeLanding) -> None:
    landing.cycle()
    before = prepare_table(landing.session, DATA)
    asserted = from_offsets(landing.session, {("orders", 1): 5}, [DATA])
    assert assert_tables(landing.session, asserted) == {"attested": {DATA: {"orders[0]": 20, "orders[1]": 5}}}
    after = prepare_table(landing.session, DATA)
    assert before is not None
    assert after is not None
    assert before.ledger.section.epoch != after.ledger.section.epoch
    assert [str(s) for s in landing.open("b").slices] == ["orders[1][5, 10)"]


def test_a_decision_on_a_ledger_that_has_changed_since_is_refused(landing: FakeLanding) -> None:
    landing.cycle("a")
    asserted = from_offsets(landing.session, {("orders", 1): 5}, [DATA])
    landing.source.ends = {P0: 40, P1: 10}
    landing.cycle("b")
    before = landing.snapshots()
    with pytest.raises(LedgerError):
        assert_tables(landing.session, asserted)
    assert landing.snapshots() == before


@pytest.mark.heavy
def test_a_snapshot_reports_what_its_ledger_reports(landing: FakeLanding) -> None:
    landing.cycle("a")
    first = landing.session.tables.load(DATA).metadata.current_snapshot_id
    landing.source.ends = {P0: 40, P1: 10}
    landing.cycle("b")
    assert first is not None
    (one,) = from_snapshot(landing.session, first).tables
    assert one.again == coverage([(P0, 20, 40)])
    with pytest.raises(LedgerError, match="LC7001"):
        from_snapshot(landing.session, 7)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({("orders", 9): 0}, r"orders\[9\]: the source has no such partition.*LC7007"),
        ({("orders", 0): 99}, r"cannot hold orders\[0\] .*the partition ends at 20.*LC7018"),
    ],
)
def test_a_decision_that_cannot_be_true_is_refused(
    landing: FakeLanding, at: dict[tuple[str, int], int], message: str
) -> None:
    landing.cycle()
    with pytest.raises(SourceError, match=message):
        from_offsets(landing.session, at, [DATA])


def test_a_log_that_was_cut_reports_nothing_of_a_partition_without_a_ledger(landing: FakeLanding) -> None:
    landing.source.ends = {P0: 20, P1: 0}
    landing.cycle()
    landing.catalog.drop_table(DATA)
    landing.session.tables.create(DATA, SCHEMA)
    landing.source.ends = {P0: 20, P1: 10}
    landing.control.cut(landing.control.partition_for("lakecommit-rows"), 1)
    with pytest.raises(LedgerError, match=r"orders\[1\].*LC7006"):
        from_log(landing.session, [DATA])


def test_the_log_is_not_trusted_against_a_ledger_that_was_rolled_back(landing: FakeLanding) -> None:
    landing.cycle("a")
    first = landing.session.tables.load(DATA).metadata.current_snapshot_id
    landing.source.ends = {P0: 40, P1: 10}
    landing.cycle("b")
    assert first is not None
    landing.session.tables.load(DATA).manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(
        LedgerError, match=rf"orders\[0\] \[20, 40\) was published.*rolled back.*--snapshot {first}.*LC7014"
    ):
        from_log(landing.session, [DATA])


def test_the_log_is_not_trusted_for_a_landing_that_was_rolled_back_to_before_its_first_snapshot(
    landing: FakeLanding,
) -> None:
    """The rows of others are as many as those that it had."""
    table = landing.session.tables.create(DATA, SCHEMA)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(data_file("file:///foreign/0.parquet", 1000))
    landing.cycle("a")
    table = landing.session.tables.load(DATA)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(LedgerError, match=r"orders\[0\] \[0, 20\).* branch main.*--from earliest.*LC7015"):
        from_log(landing.session)
    ledger_init(landing.session, {("orders", 0): 0, ("orders", 1): 0})
    landing.cycle("b")
    assert [s["lakecommit.rows"] for s in landing.snapshots() if "lakecommit.rows" in s][-1] == "30"


@pytest.mark.heavy
def test_the_log_is_not_verified_of_a_table_that_has_fewer_rows(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.catalog.drop_table(DATA)
    landing.session.tables.create(DATA, SCHEMA)
    with pytest.raises(LedgerError, match="LC7016"):
        from_log(landing.session, [DATA])


def test_what_is_reported_and_missing_at_the_source_is_not_voided_by_a_decision(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("b"))
    landing.source.starts = {P0: 40}
    asserted = from_offsets(landing.session, {("orders", 1): 5}, [DATA])
    before = landing.snapshots()
    with pytest.raises(LedgerError, match=r"orders\[0\] \[20, 40\) \(20 records\).*--give-up-reported.*LC7009"):
        assert_tables(landing.session, asserted)
    assert landing.snapshots() == before
    assert_tables(landing.session, asserted, give_up_reported=True)


def test_a_cut_ledger_is_asserted_under_its_epoch_where_that_keeps_what_is_reported(landing: FakeLanding) -> None:
    landing.cycle("a")
    kept = landing.session.tables.load(DATA).metadata.current_snapshot_id
    landing.source.ends = {P0: 40, P1: 10}
    opened = landing.open("b")
    landing.report(opened)
    landing.source.starts = {P0: 40}
    for n in range(2):
        table = landing.session.tables.load(DATA)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(f"file:///foreign/{n}.parquet", 1))
        if not n:
            expired = append.snapshot_id
    landing.session.tables.load(DATA).maintenance.expire_snapshots().by_id(expired).commit()
    assert kept is not None
    assert_tables(landing.session, from_snapshot(landing.session, kept))
    assert landing.close("b", opened).rows == 20


def test_a_log_with_a_record_that_cannot_be_read_has_no_decision(landing: FakeLanding) -> None:
    """It may have told of a commit, and what was landed would be read again."""
    landing.cycle()
    partition = landing.control.partition_for(landing.session.landing.group_id)
    with landing.control.writer("anybody", partition) as writer:
        writer.send([(b"k", b"junk", [("lakecommit", b"{")])])
    with pytest.raises(LedgerError, match="LC7004"):
        from_log(landing.session, [DATA])
    (one,) = from_offsets(landing.session, {("orders", 0): 20, ("orders", 1): 10}, [DATA]).tables
    assert not one.again
