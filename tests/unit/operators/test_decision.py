# SPDX-License-Identifier: Apache-2.0
"""The operators that mend: nothing without a user's decision, and then only what the person was shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.core.blocks import own_budget
from airflow_provider_lakecommit.core.commands import RESET_ASSERT, RESET_BLOCKED, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.exceptions import DecisionError, SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.operators.tasks.decision import decided
from tests.fakes.session import DATA, P0, P1, FakeLanding

BLOCKED, OFFSETS, ASSERT = (spoken(each) for each in (RESET_BLOCKED, RESET_OFFSETS, RESET_ASSERT))
TASK = ("agreed", "decided_by", "reason")
ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
YES = {
    "chosen_options": ["Approve"],
    "params_input": {"reason": "the producer is mended"},
    "responded_by_user": {"id": "7", "name": "ann"},
    "timedout": False,
}
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="repairs", run_id="manual__1")}

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[FakeLanding]:
    made = FakeLanding(tmp_path)
    yield made
    made.session.close()
    made.catalog.close()


@pytest.fixture
def run(landing: FakeLanding, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(operation, **arguments)`: its result as another task gets it, through JSON.

    ``rendered`` are arguments that are templates when the DAG is parsed.
    """

    @contextmanager
    def session(_: LandingOperationOperator) -> Iterator[object]:
        yield landing.session

    monkeypatch.setattr(LandingOperationOperator, "session", session)

    def once(operation: str, **arguments: Any) -> dict[str, Any]:
        missing, rendered = arguments.pop("missing", False), arguments.pop("rendered", {})
        own = {name: arguments.pop(name) for name in TASK if name in arguments}
        operator = LandingOperationOperator(
            task_id="t",
            landing=landing.session.landing,
            operation=operation,
            arguments={**arguments, **dict.fromkeys(rendered, "{{ params.told }}")},
            **own,
        )
        operator.arguments = {**arguments, **rendered}
        if missing:
            operator.agreed = None
        found: dict[str, Any] = json.loads(json.dumps(operator.execute(CONTEXT)))
        return found

    return once


def blocked(landing: FakeLanding, **options: Any) -> None:
    opened = landing.open("bad")
    landing.report(opened, **{"blocked": "too many rejects", "rejected": 4, **options})
    landing.close("bad", opened)


class TestDecision:
    def test_an_answer_names_who_gave_it_and_why(self) -> None:
        assert decided(YES) == ("ann", "the producer is mended")
        assert decided({**YES, "responded_by_user": {"id": "7", "name": ""}, "params_input": {}}) == ("7", "")
        assert decided("  ann ") == ("ann", "")

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            "",
            "  ",
            "None",
            "null",
            [],
            ["Approve"],
            True,
            1,
            {},
            {**YES, "chosen_options": ["Reject"]},
            {**YES, "chosen_options": []},
            {**YES, "chosen_options": None},
            {**YES, "chosen_options": ["Approve", "Reject"]},
            {**YES, "chosen_options": "Approve"},
            {**YES, "responded_by_user": None},
            {**YES, "responded_by_user": {}},
            {**YES, "responded_by_user": {"id": "", "name": ""}},
            {**YES, "timedout": True},
        ],
        ids=str,
    )
    def test_anything_else_is_none(self, answer: Any) -> None:
        with pytest.raises(DecisionError, match=r"nothing is written.*(LC8317|LC8318|LC8319)"):
            decided(answer)

    def test_without_one_nothing_is_written_and_no_connection_is_opened(
        self, run: Run, landing: FakeLanding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="skip")
        before = landing.kinds(), landing.snapshots()
        monkeypatch.setattr(LandingOperationOperator, "session", lambda _: pytest.fail("it was opened"))
        for answer in (None, "None", {**YES, "chosen_options": ["Reject"]}):
            with pytest.raises(AirflowFailException, match="DecisionError"):
                run(BLOCKED, how="skip", agreed=previewed, decided_by=answer)
        assert (landing.kinds(), landing.snapshots()) == before

    @pytest.mark.parametrize("agreed", ["None", [], {}, {"landing": "rows"}])
    def test_the_preview_has_to_be_there(self, run: Run, landing: FakeLanding, agreed: Any) -> None:
        blocked(landing)
        with pytest.raises(AirflowFailException, match="the preview is missing"):
            run(BLOCKED, how="skip", agreed=agreed, decided_by=YES)

    def test_an_output_that_is_missing_does_not_make_the_task_one_that_only_shows(
        self, run: Run, landing: FakeLanding
    ) -> None:
        blocked(landing)
        with pytest.raises(AirflowFailException, match="the preview is missing"):
            run(BLOCKED, how="skip", agreed="{{ gone }}", missing=True, decided_by=YES)

    def test_it_has_to_be_of_this_landing(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="skip")
        with pytest.raises(AirflowFailException, match="of landing 'other'"):
            run(BLOCKED, how="skip", agreed={**previewed, "landing": "other"}, decided_by=YES)


class TestResetBlocked:
    def test_it_shows_first_and_writes_nothing(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        before = landing.kinds(), landing.snapshots()
        previewed = run(BLOCKED, how="skip whole")
        assert "GIVES UP all of: orders[0][0, 10) (6 good records, 4 bad): too many rejects" in previewed["text"]
        assert previewed["ranges"] == {"orders[0]": [[0, 20]], "orders[1]": [[0, 10]]}
        assert (landing.kinds(), landing.snapshots()) == before

    def test_the_preview_is_applied_and_the_history_names_the_user(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="raise", budget="500:0.5", partitions=["orders:1"])
        done = run(BLOCKED, how="raise", budget="500:0.5", partitions=["orders:1"], agreed=previewed, decided_by=YES)
        assert done["read_again"] == {"orders[1]": [[0, 10]]}
        assert done["committed"]
        (text,) = {s["lakecommit.decisions"] for s in landing.snapshots() if "ann" in str(s)}
        assert "ann in run manual__1 of DAG repairs" in text
        assert "the producer is mended" in text

    def test_a_retry_reads_again_under_the_landings_own_budget(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="retry", partitions=["orders:1"])
        assert "READS AGAIN, under the landing's current budget: orders[1][0, 10)" in previewed["text"]
        done = run(BLOCKED, how="Retry", agreed=previewed, decided_by=YES)
        assert (done["read_again"], done["skipped"]) == ({"orders[1]": [[0, 10]]}, False)
        budget = own_budget(landing.session.landing.budget, landing.session.landing.dead_letter_table)
        assert [budget for _, budget in landing.session.read_state(()).state.raised] == [budget]

    def test_only_the_previewed_ranges_are_taken(self, run: Run, landing: FakeLanding) -> None:
        opened = landing.open("a")
        landing.report(
            opened, lambda s: s.group == 0 and any(p.partition == P1 for p in s.spans), blocked="b", rejected=2
        )
        landing.close("a", opened)
        previewed = run(BLOCKED, how="skip whole")
        assert list(previewed["ranges"]) == ["orders[1]"]
        blocked(landing)
        done = run(BLOCKED, how="skip whole", agreed=previewed, decided_by=YES)
        assert list(done["unblocked"]) == ["orders[1]"]
        assert list(run(BLOCKED, how="skip whole")["ranges"]) == ["orders[0]"]

    def test_another_operation_than_the_previewed_one_is_refused(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="skip")
        for arguments in ({"how": "skip whole"}, {"how": "raise", "budget": 5}):
            with pytest.raises(AirflowFailException, match="was not previewed and approved"):
                run(BLOCKED, **arguments, agreed=previewed, decided_by=YES)

    def test_other_counts_than_previewed_are_refused(self, run: Run, landing: FakeLanding) -> None:
        blocked(landing)
        previewed = run(BLOCKED, how="skip whole")
        previewed["blocked"] = [text.replace("6 good", "0 good") for text in previewed["blocked"]]
        with pytest.raises(AirflowFailException, match="6 good records"):
            run(BLOCKED, how="skip whole", agreed=previewed, decided_by=YES)

    def test_nothing_to_do_is_skipped(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        with pytest.raises(AirflowSkipException, match="nothing is blocked there"):
            run(BLOCKED, how="skip")
        landing.source.ends = {P0: 30, P1: 10}
        blocked(landing)
        previewed = run(BLOCKED, how="skip whole")
        run(BLOCKED, how="skip whole", agreed=previewed, decided_by=YES)
        with pytest.raises(AirflowSkipException, match="already done"):
            run(BLOCKED, how="skip whole", agreed=previewed, decided_by=YES)

    @pytest.mark.heavy(but=("*needs a *",))
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"how": "retry later"}, "skip whole, release or drop"),
            ({"how": "raise"}, "needs a budget"),
            ({"how": "raise", "budget": "many"}, "is not N or N:RATIO"),
            ({"how": "skip", "partitions": ["orders"]}, "is not TOPIC:PARTITION"),
            ({"how": "skip", "ranges": ["orders:0=9"]}, "use TOPIC:PARTITION=FROM-TO"),
            ({"how": "release"}, "LC7055"),
            ({"how": "drop", "partitions": ["orders:0"]}, "LC8362"),
        ],
        ids=str,
    )
    def test_what_cannot_be_meant_is_refused(
        self, run: Run, landing: FakeLanding, arguments: dict[str, Any], message: str
    ) -> None:
        blocked(landing)
        with pytest.raises(AirflowFailException, match=message):
            run(BLOCKED, rendered=arguments)


class TestResetOffsets:
    def test_latest_is_where_the_topic_ended_at_the_preview(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        landing.source.ends = {P0: 80, P1: 10}
        previewed = run(OFFSETS, start="latest")
        assert "GIVES UP, never read: orders[0] [20, 80) (60 offsets, about 600 bytes)" in previewed["text"]
        landing.source.ends = {P0: 95, P1: 10}
        done = run(OFFSETS, start="latest", agreed=previewed, decided_by=YES, reason="agreed with sales")
        assert done["ledger"][DATA] == {"orders[0]": 80, "orders[1]": 10}
        decisions = landing.snapshots()[-1]["lakecommit.decisions"]
        assert "gives up orders[0] [20, 80)" in decisions
        assert "agreed with sales" in decisions
        assert "ann in run" in decisions

    def test_latest_of_some_partitions_is_where_these_ended_at_the_preview(
        self, run: Run, landing: FakeLanding
    ) -> None:
        landing.cycle()
        landing.source.ends = {P0: 80, P1: 40}
        previewed = run(OFFSETS, start="latest", partitions="orders:0")
        landing.source.ends = {P0: 95, P1: 50}
        done = run(OFFSETS, start="latest", partitions="orders:0", agreed=previewed, decided_by=YES)
        assert done["ledger"][DATA] == {"orders[0]": 80, "orders[1]": 10}

    def test_more_than_previewed_is_not_given_up(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        landing.source.ends = {P0: 80, P1: 40}
        previewed = run(OFFSETS, start="orders:0=30,orders:1=40")
        previewed["tables"][0]["given_up"]["orders[1]"] = [[10, 20]]
        before = landing.snapshots()
        with pytest.raises(AirflowFailException, match=r"shop\.rows given up orders\[1\] \[20, 40\)"):
            run(OFFSETS, start="orders:0=30,orders:1=40", agreed=previewed, decided_by=YES)
        assert landing.snapshots() == before

    def test_another_start_or_topic_is_refused(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        landing.source.ends = {P0: 80, P1: 40}
        previewed = run(OFFSETS, start="orders:0=30")
        with pytest.raises(AirflowFailException, match="start='latest'"):
            run(OFFSETS, start="latest", agreed=previewed, decided_by=YES)
        with pytest.raises(AirflowFailException, match="topic was recreated"):
            run(OFFSETS, start="orders:0=30", agreed={**previewed, "topic_ids": {"orders": "topic-0"}}, decided_by=YES)


class TestResetAssert:
    def test_the_preview_is_reported(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        arguments = {"at": "orders:0=15,orders:1=10", "tables": [DATA]}
        before = landing.snapshots()
        previewed = run(ASSERT, **arguments)
        assert "read AGAIN" in previewed["text"]
        assert landing.snapshots() == before
        done = run(ASSERT, **arguments, agreed=previewed, decided_by="ann")
        assert done["attested"][DATA] == {"orders[0]": 15, "orders[1]": 10}
        assert "ann in run" in landing.snapshots()[-1]["lakecommit.decisions"]

    def test_a_ledger_that_has_changed_since_is_checked_again(self, run: Run, landing: FakeLanding) -> None:
        landing.cycle()
        arguments = {"at": "orders:0=15,orders:1=10", "tables": [DATA]}
        previewed = run(ASSERT, **arguments)
        landing.source.ends = {P0: 40, P1: 10}
        landing.cycle("b")
        before = landing.snapshots()
        with pytest.raises(AirflowFailException, match="was not previewed and approved"):
            run(ASSERT, **arguments, agreed=previewed, decided_by=YES)
        assert landing.snapshots() == before

    def test_one_decision_is_needed(self) -> None:
        for arguments in ({}, {"from_log": True, "at": "orders:0=1"}):
            with pytest.raises(SpecError, match="LC8341"):
                LandingOperationOperator(task_id="t", landing=ORDERS, operation=ASSERT, arguments=arguments)

    @pytest.mark.heavy(but=("*orders:0*", "*newest*"))
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"snapshot_id": ""}, "use the id .a number. of a snapshot"),
            ({"snapshot_id": "newest"}, "use the id .a number. of a snapshot"),
            ({"at": "orders:0"}, "use TOPIC:PARTITION=OFFSET"),
            ({"from_log": True, "tables": ["shop.other"]}, "the landing has shop.rows"),
        ],
        ids=str,
    )
    def test_what_cannot_be_meant_is_refused(
        self, run: Run, landing: FakeLanding, arguments: dict[str, Any], message: str
    ) -> None:
        landing.cycle()
        known = {name: value for name, value in arguments.items() if name == "from_log"}
        with pytest.raises(AirflowFailException, match=message):
            run(ASSERT, **known, rendered={k: v for k, v in arguments.items() if k not in known})


def test_rows_are_deleted_by_a_decision_of_its_own() -> None:
    with pytest.raises(SpecError, match="LC8341"):
        LandingOperationOperator(
            task_id="t",
            landing=ORDERS,
            operation=OFFSETS,
            arguments={"start": "earliest", "delete": True, "again": True},
        )


def test_it_has_to_be_of_this_operation(run: Run, landing: FakeLanding) -> None:
    blocked(landing)
    preview = run(BLOCKED, how="skip")
    with pytest.raises(AirflowFailException, match="the preview is of operation 'reset blocked'"):
        run(OFFSETS, start="latest", agreed=preview, decided_by=YES)
