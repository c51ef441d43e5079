# SPDX-License-Identifier: Apache-2.0
"""Each promise that `verify` checks, broken on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.formats import FORMATS
from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import ControlPosition, Counts, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.table_history import AddedFile, Finding, LandingSnapshot, Severity, TableHistory
from airflow_provider_lakecommit.status.verify import check_landing, totals
from airflow_provider_lakecommit.status.verify_table import check_table

P0, P1 = (SourcePartition("orders", n, "topic-id") for n in range(2))
LANDING = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.dead")
CONTROL = ControlPosition(cluster_id="c", topic="control", topic_id="t", partition=0, read_from=0, low=None)


def cover(*ranges: tuple[SourcePartition, int, int]) -> Coverage:
    return Coverage.of((p, OffsetRange(start, end)) for p, start, end in ranges)


def section(
    covered: Coverage, landing: str = "orders", starts: dict[SourcePartition, int] | None = None
) -> LedgerSection:
    return LedgerSection(
        landing=landing,
        lane="live",
        cluster_id="c",
        epoch=UUID(int=1),
        spec_version="s",
        starts={P0: 0, P1: 0} if starts is None else starts,
        covered=covered,
        control=CONTROL,
    )


def snapshot(
    n: int,
    covered: Coverage,
    ranges: Coverage | None = None,
    *,
    kind: SnapshotKind = SnapshotKind.APPEND,
    rows: int | None = None,
    files: Iterable[AddedFile] | None = None,
    account: Mapping[SourcePartition, Counts] | None = None,
    others: Iterable[LedgerSection] = (),
    token: UUID | None = None,
) -> LandingSnapshot:
    """A snapshot that adds up, but for what is given."""
    added = ranges or Coverage()
    if account is None:
        account = {p: Counts(landed=len(s)) for p, s in added.parts.items()}
    held = sum(c.landed for c in account.values()) if rows is None else rows
    sections = [section(covered), *others]
    return LandingSnapshot(
        record=SnapshotRecord(
            kind=kind,
            branch="main",
            landing="orders",
            lane="live",
            token=token or UUID(int=n),
            ranges=added,
            accounting=account,
            rows=held,
            snapshot_id=n,
        ),
        sections={(s.landing, s.lane): s for s in sections},
        files=tuple(((f"f{n}", held),) if held else ()) if files is None else tuple(files),
    )


ORIGIN = snapshot(1, Coverage(), kind=SnapshotKind.ORIGIN)
FIRST = snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)))
SECOND = snapshot(3, cover((P0, 0, 15), (P1, 0, 4)), cover((P0, 10, 15), (P1, 0, 4)))


def history(*snapshots: LandingSnapshot, table: str = "shop.orders", whole: bool = True) -> TableHistory:
    return TableHistory(
        table=table, snapshots=snapshots, whole=whole, head=tuple(path for s in snapshots for path, _ in s.files)
    )


def texts(findings: Iterable[Finding]) -> str:
    return "\n".join(str(f) for f in findings)


def test_a_history_that_adds_up_has_no_findings() -> None:
    assert texts(check_landing(LANDING, [history(ORIGIN, FIRST, SECOND)])) == ""


def test_totals_are_of_one_landing() -> None:
    found = totals(history(ORIGIN, FIRST, SECOND), "orders")
    assert (found.snapshots, found.offsets, found.rows, found.files, found.counts.landed) == (3, 19, 19, 2, 19)
    assert totals(history(ORIGIN, FIRST, SECOND), "other").rows == 0


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            snapshot(2, cover((P0, 0, 9)), cover((P0, 0, 10))),
            "gained orders[0] [0, 9), but the snapshot reports orders[0] [0, 10)",
        ),
        (snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 9))), "gained orders[0] [0, 10), but the snapshot reports"),
        (
            snapshot(2, cover((P0, 0, 10)), Coverage(), kind=SnapshotKind.CARRY),
            "gained orders[0] [0, 10), but the snapshot reports nothing",
        ),
        (snapshot(2, cover((P0, 2, 10)), cover((P0, 2, 10))), "has a hole: orders[0] is landed to 0 and in [2, 10)"),
        (snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), rows=9), "9 rows for 10 landed records"),
        (
            snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), files=[("f", 9)]),
            "reports 10 rows, but its 1 files have 9",
        ),
        (
            snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account={P0: Counts(landed=9)}),
            "orders[0]: [0, 10) spans 10 offsets, but 9 are accounted for",
        ),
        (
            snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account={P1: Counts(landed=10)}),
            "orders[1]: nothing spans 0 offsets, but 10 are accounted for",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_snapshot_that_does_not_add_up_is_wrong(broken: LandingSnapshot, message: str) -> None:
    found = check_landing(LANDING, [history(ORIGIN, broken)])
    assert message in texts(found)
    assert {f.snapshot_id for f in found} == {2}
    assert {f.level for f in found} == {Severity.WRONG}


@pytest.mark.parametrize(("rows", "found"), [(9, "9 rows for 10 landed records"), (10, ""), (14, "")])
def test_a_record_may_be_several_rows_in_formats_that_report_it(
    rows: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "lines", "")
    landed = snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), rows=rows)
    assert found in texts(check_landing(replace(LANDING, format="lines"), [history(ORIGIN, landed)]))
    assert bool(check_landing(replace(LANDING, format="lines"), [history(ORIGIN, landed)])) == bool(found)
    assert bool(check_landing(LANDING, [history(ORIGIN, landed)])) == (rows != 10)


def test_a_range_that_was_landed_before_is_landed_twice() -> None:
    again = snapshot(3, cover((P0, 0, 12)), cover((P0, 8, 12)))
    assert "orders[0] [8, 10) was in the ledger of landing 'orders' before: landed twice" in texts(
        check_table(history(ORIGIN, FIRST, again))
    )


def test_a_ledger_that_loses_ranges_is_wrong_unless_a_user_set_it() -> None:
    assert "lost orders[0] [5, 10)" in texts(
        check_table(history(ORIGIN, FIRST, snapshot(3, cover((P0, 0, 5)), kind=SnapshotKind.EPOCH)))
    )
    assert texts(check_table(history(ORIGIN, FIRST, snapshot(3, cover((P0, 0, 5)), kind=SnapshotKind.INIT)))) == ""


def test_gaps_filtered_rejected_and_skipped_records_make_up_a_span() -> None:
    counts = Counts(landed=4, rejected=3, filtered=2, gaps=1, skipped=5)
    mixed = snapshot(2, cover((P0, 0, 15)), cover((P0, 0, 15)), account={P0: counts})
    assert texts(check_table(history(ORIGIN, mixed))) == ""


def test_the_section_of_another_landing_must_stay_as_it_was() -> None:
    other = section(cover((P0, 0, 3)), "other", starts={})
    moved = replace(other, covered=cover((P0, 0, 5)))
    before = snapshot(2, cover((P1, 0, 2)), cover((P1, 0, 2)), others=[other])
    after = snapshot(3, cover((P1, 0, 4)), cover((P1, 2, 4)), others=[moved])
    missing = snapshot(3, cover((P1, 0, 4)), cover((P1, 2, 4)))
    first = replace(ORIGIN, sections={**ORIGIN.sections, ("other", "live"): other})
    start = replace(ORIGIN, sections={("other", "live"): other})
    assert "ledger of landing 'other' gained orders[0] [3, 5), but the snapshot reports nothing" in texts(
        check_table(history(start, first, before, after, whole=False))
    )
    assert "the ledger of landing 'other' is missing" in texts(
        check_table(history(start, first, before, missing, whole=False))
    )


def test_two_landings_that_hold_the_same_offsets_are_wrong() -> None:
    other = section(cover((P0, 5, 8)), "other", starts={P0: 5})
    both = snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), others=[other])
    assert "landings 'orders' and 'other' both have orders[0] [5, 8)" in texts(check_table(history(both, whole=False)))


def test_a_token_that_names_two_snapshots_is_wrong() -> None:
    twice = replace(SECOND, record=replace(SECOND.record, token=FIRST.record.token))
    assert f"2 snapshots have the token {FIRST.record.token}" in texts(check_table(history(ORIGIN, FIRST, twice)))


def test_a_file_that_two_snapshots_added_is_named_once() -> None:
    same = replace(SECOND, files=(("f2", 9),))
    found = texts(check_table(history(ORIGIN, FIRST, same)))
    assert found.count("f2") == 1
    assert "file f2 was added by 2 snapshots" in found


def test_a_file_that_is_in_the_table_twice_is_wrong() -> None:
    doubled = replace(history(ORIGIN, FIRST), head=("f2", "f2"))
    assert "file f2 is in the table 2 times" in texts(check_table(doubled))


def test_an_expired_history_is_checked_from_where_it_begins() -> None:
    assert texts(check_table(history(SECOND, whole=False))) == ""
    assert "gained" in texts(check_table(history(SECOND, whole=True)))
    assert "9 rows" in texts(check_table(history(replace(SECOND, files=(("f", 8),)), whole=False)))


def dead(rows: int, rejected: int, covered: Coverage | None = None) -> TableHistory:
    account = {P0: Counts(landed=10 - rejected, rejected=rejected)}
    span = covered or cover((P0, 0, 10))
    return history(ORIGIN, snapshot(2, span, span, account=account, rows=rows), table="shop.dead")


def data(rejected: int) -> TableHistory:
    account = {P0: Counts(landed=10 - rejected, rejected=rejected)}
    return history(ORIGIN, snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account=account))


def test_each_rejected_record_is_one_dead_letter() -> None:
    assert texts(check_landing(LANDING, [data(3), dead(3, 3)])) == ""
    assert "shop.dead snapshot 2: 2 rows for 3 rejected records" in texts(check_landing(LANDING, [data(3), dead(2, 3)]))


def test_tables_at_the_same_end_must_agree_on_what_was_rejected() -> None:
    assert "4 rows, but 3 records of shop.orders were rejected" in texts(check_landing(LANDING, [data(3), dead(4, 4)]))


def test_a_dead_letter_table_that_is_behind_is_reported_and_not_wrong() -> None:
    behind = history(ORIGIN, table="shop.dead")
    (found,) = check_landing(LANDING, [data(3), behind])
    assert found.level is Severity.NOTE
    assert "3 records of shop.orders were rejected there: it is behind" in found.text
    assert texts(check_landing(LANDING, [data(0), behind])) == ""


def longer(of: TableHistory, rejected: int, rows: int, end: int = 20) -> TableHistory:
    """With another snapshot, up to an end."""
    had = of.snapshots[-1].sections["orders", "live"].covered
    account = {P0: Counts(landed=end - 10 - rejected, rejected=rejected)}
    one = snapshot(3, had | cover((P0, 10, end)), cover((P0, 10, end)), account=account, rows=rows)
    return replace(of, snapshots=(*of.snapshots, one), head=())


def test_tables_at_different_ends_are_compared_on_what_both_have() -> None:
    found = check_landing(LANDING, [longer(data(3), 0, 10), dead(4, 4)])
    assert "of orders[0] [0, 10) it has 4 rows, but 3 records of shop.orders were rejected" in texts(found)
    assert {f.level for f in found} == {Severity.WRONG}
    assert texts(check_landing(LANDING, [longer(data(3), 0, 10), dead(3, 3)])) == ""


def test_differences_of_two_ranges_do_not_cancel_out() -> None:
    ours, theirs = longer(data(3), 1, 9), longer(dead(1, 1), 3, 3)
    found = texts(check_landing(LANDING, [ours, theirs]))
    assert "[0, 10) it has 1 rows, but 3" in found
    assert "[10, 20) it has 3 rows, but 1" in found


def evaluated(of: TableHistory, **rules: Coverage) -> TableHistory:
    last = of.snapshots[-1]
    sections = {key: replace(one, evaluated=rules) for key, one in last.sections.items()}
    return replace(of, snapshots=(*of.snapshots[:-1], replace(last, sections=sections)))


def test_rejects_that_the_tables_report_by_other_rules_are_wrong_though_they_are_as_many() -> None:
    whole = cover((P0, 0, 10))
    (found,) = check_landing(LANDING, [evaluated(data(3), one=whole), evaluated(dead(3, 3), two=whole)])
    assert (found.level, found.table) == (Severity.WRONG, "shop.dead")
    assert "orders[0] [0, 10) was evaluated by other rules than in shop.orders" in found.text


def test_other_rules_that_reject_nothing_are_nothing_wrong() -> None:
    whole = cover((P0, 0, 10))
    assert texts(check_landing(LANDING, [evaluated(data(0), one=whole), evaluated(dead(0, 0), two=whole)])) == ""
    assert texts(check_landing(LANDING, [evaluated(data(3), one=whole), evaluated(dead(3, 3), one=whole)])) == ""
    assert texts(check_landing(LANDING, [evaluated(data(3), one=whole), dead(3, 3)])) == "", "older"


def test_what_a_user_stated_of_dead_letters_is_reported_and_not_wrong() -> None:
    dead = history(ORIGIN, snapshot(2, cover((P0, 0, 10)), kind=SnapshotKind.INIT), table="shop.dead")
    named, found = check_landing(LANDING, [data(3), dead])
    assert "a user set the ledger" in named.text
    assert {named.level, found.level} == {Severity.NOTE}
    assert "or a user stated that it has them" in found.text


def test_dead_letters_that_a_user_gave_up_are_reported_and_not_wrong() -> None:
    given_up = {P0: Counts(skipped=10)}
    skipped = history(
        ORIGIN, snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account=given_up, rows=0), table="shop.dead"
    )
    (found,) = check_landing(LANDING, [data(3), skipped])
    assert found.level is Severity.NOTE
    assert "a user gave up 10 offsets" in found.text


def test_what_was_given_up_without_a_dead_letter_table_may_be_in_one_that_came_back() -> None:
    def both(skipped: int, rejected: int) -> list[Finding]:
        ours = {P0: Counts(landed=10 - skipped, skipped=skipped)}
        theirs = {P0: Counts(landed=10 - rejected, rejected=rejected)}
        rows = snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account=ours)
        dead = snapshot(2, cover((P0, 0, 10)), cover((P0, 0, 10)), account=theirs, rows=rejected)
        return check_landing(LANDING, [history(ORIGIN, rows), history(ORIGIN, dead, table="shop.dead")])

    (found,) = both(skipped=2, rejected=1)
    assert (found.level, "a user gave up 2 offsets of shop.orders" in found.text) == (Severity.NOTE, True)
    assert [f.level for f in both(skipped=1, rejected=2)] == [Severity.WRONG]


def test_a_landing_that_no_table_knows_where_others_are_is_not_all_right() -> None:
    (found,) = check_landing(replace(LANDING, name="orderz"), [history(ORIGIN, FIRST)])
    assert found.level is Severity.WRONG
    assert "it has nothing of landing 'orderz', so nothing could be checked; it has 'orders'" in found.text
    assert check_landing(LANDING, [history()]) == []


def test_a_hole_is_evaluated_from_where_the_stream_starts() -> None:
    later = section(Coverage({P0: RangeSet.of((5, 9))}), starts={P0: 5})
    one = replace(FIRST, sections={("orders", "live"): later})
    assert texts(f for f in check_table(history(one, whole=False)) if "hole" in f.text) == ""


def test_what_a_user_decided_is_reported_once_also_where_a_release_did_not_carry_it_on() -> None:
    commands = ["reset offsets", "maintain --only ledger"]
    decisions = [Decision(command=c, actor="carla", host="h", at="2026-01-01") for c in commands]
    snapshots = [snapshot(n, cover((P0, 0, n)), cover((P0, n - 1, n))) for n in (1, 2, 3)]
    kept = [(decisions[0],), tuple(decisions), ()]
    decided = [replace(s, record=replace(s.record, decisions=d)) for s, d in zip(snapshots, kept, strict=True)]
    found = check_landing(LANDING, [TableHistory(table="shop.orders", snapshots=tuple(decided), whole=True)])
    notes = [f.text for f in found if "decision of a user" in f.text]
    assert [n.partition("`")[2].partition("`")[0] for n in notes] == commands
