# SPDX-License-Identifier: Apache-2.0
"""The outcome table: every row is reached, the order of the rows holds, the reason names what matters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.outcome import TABLE, Commit, Ended, decide

ALL_WELL = Ended(
    plan="success",
    groups={0: "success", 1: "success"},
    commit="success",
    closed=Commit(published=("shop.orders snapshot 7",)),
)


def ended(closed: Commit | None = None, **changed: object) -> Ended:
    """All well, but for what is changed."""
    return replace(ALL_WELL, closed=closed or ALL_WELL.closed, **changed)  # type: ignore[arg-type]


CASES = {
    "all well": (ALL_WELL, "success", "published shop.orders snapshot 7"),
    "plan failed": (ended(Commit(), plan="failed", groups={0: "upstream_failed"}), "failed", "not planned"),
    "what is before the plan failed": (ended(Commit(), plan="upstream_failed", groups={}), "failed", "not planned"),
    "commit failed": (
        replace(ALL_WELL, commit="failed", closed=None, failure="CatalogError: away"),
        "failed",
        "CatalogError: away; it is unknown what was published",
    ),
    "commit died without a word": (
        replace(ALL_WELL, commit="failed", closed=None),
        "failed",
        "ended failed, see its log (*inactive assets* there mean that two landings have the same name",
    ),
    "a group failed, the others are published": (
        ended(Commit(published=("t snapshot 1",), missing=("orders-1[5, 9)",)), groups={0: "success", 1: "failed"}),
        "failed",
        "1 of 2 groups failed (map index 1); the next run reads again what is missing: orders-1[5, 9)",
    ),
    "a slice is missing though its group succeeded": (
        ended(Commit(published=("t snapshot 1",), missing=("orders-1[5, 9)",))),
        "failed",
        "orders-1[5, 9)",
    ),
    "a range is blocked": (
        ended(Commit(published=("t snapshot 1",), blocked=("orders-0[3, 4): 9 rejected",))),
        "failed",
        "`lakecommit reset blocked SPEC --retry`",
    ),
    "records do not fit, and the landing is to stop before them": (
        ended(Commit(published=("t snapshot 1",), stopped="incompatible records: c is int"), groups={}),
        "failed",
        "some ranges were not planned and need your decision: incompatible records: c is int",
    ),
    "a group failed of bad records": (
        ended(
            Commit(blocked=("orders-0[3, 4): cost is missing",), causes=("cost is missing: slice orders-0[3, 4)", "x")),
            groups={0: "failed"},
            commit="skipped",
        ),
        "failed",
        "cost is missing: slice orders-0[3, 4) (and 1 more causes); 1 of 1 groups failed (map index 0)",
    ),
    "a group failed of what no report tells": (
        ended(
            Commit(missing=("orders-0[3, 4)",)),
            groups={0: "failed"},
            commit="skipped",
            unwritten="SpecError: the Airflow connection 'spark' does not exist",
        ),
        "failed",
        "SpecError: the Airflow connection 'spark' does not exist; 1 of 1 groups failed (map index 0); the next run",
    ),
    "the plan tells why it failed": (
        ended(Commit(), plan="failed", groups={0: "upstream_failed"}, unplanned="there is no table"),
        "failed",
        "there is no table; the window was not planned",
    ),
    "staged behind an older window": (
        ended(Commit(waiting=("shop.orders: orders-0[10, 20) behind 5",)), commit="skipped"),
        "skipped",
        "orders-0[10, 20) behind 5",
    ),
    "own slices wait, older ones were published": (
        ended(Commit(published=("t snapshot 1",), waiting=("t: orders-0[10, 20) behind 5",))),
        "success",
        "published t snapshot 1",
    ),
    "nothing new": (
        ended(Commit(reason="nothing new"), groups={0: "skipped"}, commit="skipped"),
        "skipped",
        "nothing new",
    ),
    "plan was skipped by what is before it": (
        ended(Commit(), plan="skipped", groups={0: "skipped"}, commit="skipped"),
        "skipped",
        "nothing new",
    ),
    "a finished run was cleared": (
        ended(Commit(finished=True, note="its window was orders-0[0, 5)"), groups={0: "skipped"}, commit="skipped"),
        "skipped",
        "its window was orders-0[0, 5)",
    ),
    "the writer of a finished run was cleared, without its plan": (
        ended(Commit(finished=True, note="not landed of it: orders-1[5, 9)", missing=("orders-1[5, 9)",))),
        "failed",
        "not landed of it: orders-1[5, 9): that cycle is closed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_outcome(case: str) -> None:
    run, verdict, reason = CASES[case]
    ended_as, why = decide(run)
    assert ended_as == verdict
    assert reason in why


def test_every_row_of_the_table_decides_a_case() -> None:
    reached = {
        next(row.name for row in TABLE if row.applies(run, run.closed or Commit())) for run, _, _ in CASES.values()
    }
    assert reached == {row.name for row in TABLE}


def test_the_cause_comes_first_and_what_helps_last() -> None:
    commit = Commit(blocked=("orders-0[3, 4): cost is missing",), causes=("cost is missing",))
    for run in (ended(commit, groups={0: "failed"}), ended(replace(commit, missing=("orders-0[3, 4)",)))):
        reason = decide(run)[1]
        assert reason.startswith("cost is missing")
        assert reason.endswith("other partitions go on")
        assert "--retry" in reason


def test_a_failed_plan_is_reported_before_what_follows_from_it() -> None:
    run = Ended(plan="failed", groups={0: "upstream_failed"}, commit="failed", closed=None, failure="x")
    assert "not planned" in decide(run)[1]


def test_a_cleared_finished_run_is_no_failure_of_the_groups_it_no_longer_runs() -> None:
    run = ended(Commit(finished=True, note="elsewhere"), groups={0: "failed"})
    assert decide(run)[0] == "skipped"


def test_many_missing_slices_are_counted_not_listed() -> None:
    reason = decide(ended(Commit(missing=tuple(f"slice {n}" for n in range(100)))))[1]
    assert "slice 4" in reason
    assert "slice 5" not in reason
    assert "and 95 more" in reason


def test_what_the_commit_task_leaves_is_read_back() -> None:
    values = {
        "commit_id": "0d9c8e6e-0000-0000-0000-000000000000",
        "published": [{"table": "shop.orders", "snapshot_id": 7, "rows": 3}],
        "rows": 3,
        "waiting": ["w"],
        "missing": ["m"],
        "blocked": ["b"],
        "voided": [],
        "left": 0,
        "valid_through": None,
        "reason": None,
        "finished": False,
        "note": "",
        "ignored_fields": {},
    }
    assert Commit.from_dict(values) == Commit(
        published=("shop.orders snapshot 7",), waiting=("w",), missing=("m",), blocked=("b",)
    )
