# SPDX-License-Identifier: Apache-2.0
"""A landing's connections: from where the log is read, who may still speak, and what names cycles and tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.known import all_entries
from airflow_provider_lakecommit.cycle.session import landing_session as module
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError, FencedError
from tests.fakes.kafka import FakeControl, FakeWriter
from tests.fakes.session import FakeLanding
from tests.support.declared import landing_of

MESSAGE = Outgoing(key=b"k", value=b"v", headers=[])


def ledger(landing: FakeLanding, read_from: int, partition: int = 0) -> TableLedger:
    """Of a landing whose tables are ready, as if its section named that place of the log."""
    (found, *_) = prepare_for_commit(landing.session).ledgers
    control = replace(found.section.control, partition=partition, read_from=read_from)
    return replace(found, section=replace(found.section, control=control))


def fill(landing: FakeLanding, partition: int, records: int) -> None:
    landing.send(partition, [MESSAGE] * records)


def test_without_a_ledger_the_newest_part_of_the_landing_s_partition_is_read(
    landing: FakeLanding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WITHOUT_LEDGER", 3)
    partition = landing.control.partition_for("lakecommit-rows")
    fill(landing, partition, 9)
    folded = landing.session.read_state(())
    assert (folded.partition, folded.read_from, folded.end) == (partition, 7, 10)
    landing.control.cut(partition, 8)
    assert landing.session.read_state(()).read_from == 8


def test_the_partition_that_a_ledger_names_wins_over_the_hash(landing: FakeLanding) -> None:
    opened = landing.open()
    other = (opened.ticket.partition + 1) % landing.control.partitions
    fill(landing, other, 4)
    folded = landing.session.read_state([ledger(landing, 2, other)])
    assert (folded.partition, folded.read_from, folded.begin.partition) == (other, 2, other)
    assert folded.entries == ()
    assert landing.session.read_state(()).partition == other, "also while no ledger can be read any more"


def test_the_log_is_read_from_what_the_table_that_is_furthest_behind_needs(landing: FakeLanding) -> None:
    opened = landing.open()
    ledgers = [ledger(landing, n, opened.ticket.partition) for n in (7, 0, 5)]
    folded = landing.session.read_state(ledgers)
    assert folded.read_from == 0
    assert [e.commit_id for e in folded.entries] == [opened.ticket.commit_id]


def test_a_log_that_was_cut_reports_from_where_it_was_there(landing: FakeLanding) -> None:
    partition = landing.open().ticket.partition
    fill(landing, partition, 5)
    landing.control.cut(partition, 3)
    begin = landing.session.read_state([ledger(landing, 1, partition)]).begin
    assert (begin.topic_id, begin.partition, begin.offset) == ("control-1", partition, 3)


@pytest.mark.parametrize("cut", [False, True])
def test_a_later_check_reads_only_what_is_new_and_forgets_nothing(landing: FakeLanding, cut: bool) -> None:
    opened = landing.open()
    ledgers = prepare_for_commit(landing.session).ledgers
    first = landing.session.read_state(ledgers)
    if cut:
        landing.control.cut(first.partition, first.end)
    landing.report(opened)
    later = landing.session.read_state(ledgers, since=first)
    offsets = [e.offset for e in later.entries]
    assert offsets == sorted(set(offsets))
    assert later.entries[: len(first.entries)] == first.entries
    assert opened.ticket.commit_id in later.state.cycles
    assert len(later.state.accepted["shop.rows"]) == len(opened.slices)
    assert (later.begin, later.read_from, later.partition) == (first.begin, first.read_from, first.partition)
    assert later.end > first.end


def test_a_record_that_must_be_observed_is_waited_for(landing: FakeLanding) -> None:
    landing.open()
    end = landing.session.read_state(()).end
    with pytest.raises(ControlTopicError, match="LC9999"):
        landing.session.read_state((), until=end)


def test_of_other_landings_in_the_same_partition_nothing_is_taken(landing: FakeLanding) -> None:
    landing.control.partitions = 1
    landing.open()
    other = landing.connect(name="others", table="shop.others")
    assert other.read_state(()).entries == ()
    assert len(landing.session.read_state(()).entries) == 1


def holder(slot: int, deployment: str = "") -> Cycle:
    return Cycle(commit_id=uuid4(), dag="d", run="r", number=0, slot=slot, deployment=deployment)


def test_each_role_and_slot_of_a_deployment_has_one_id_and_the_last_offset_is_reported(landing: FakeLanding) -> None:
    ids: list[str] = []
    landing.control.before_send = ids.append
    assert landing.session.send("plan", holder(0), 1, [MESSAGE, MESSAGE]) == 1
    assert landing.session.send("commit", holder(3, "eu-1"), 1, [MESSAGE]) == 3
    assert ids == ["lakecommit-rows-live-0-plan", "lakecommit-rows-@eu-1-live-3-commit"]


def test_a_fenced_attempt_learns_that(landing: FakeLanding) -> None:
    def take_over(transactional_id: str) -> None:
        landing.control.writers[transactional_id] = object()

    landing.control.before_send = take_over
    with pytest.raises(FencedError):
        landing.session.send("plan", holder(0), 0, [MESSAGE])
    assert landing.control.logs == {}


@pytest.fixture
def opened(landing: FakeLanding, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that writers were made for, in order."""
    made, writer = list[str](), landing.control.writer

    def noted(transactional_id: str, partition: int) -> AbstractContextManager[FakeWriter]:
        made.append(transactional_id)
        return writer(transactional_id, partition)

    monkeypatch.setattr(landing.control, "writer", noted)
    return made


def test_a_writer_stays_open_for_the_next_cycle_in_its_slot(landing: FakeLanding, opened: list[str]) -> None:
    for slot in (0, 1, 0, 1, 0):
        landing.session.send("commit", holder(slot), 0, [MESSAGE])
    assert opened == ["lakecommit-rows-live-0-commit", "lakecommit-rows-live-1-commit"]


@pytest.mark.parametrize(("role", "sent"), [("commit", 2), ("skip", 2), ("plan", 1)])
def test_a_writer_that_was_shut_out_while_it_rested_is_opened_anew_but_a_planner_checks_first(
    landing: FakeLanding, opened: list[str], role: str, sent: int
) -> None:
    landing.session.send(role, holder(0), 0, [MESSAGE])
    landing.control.writers[opened[0]] = object()
    with pytest.raises(FencedError) if role == "plan" else nullcontext():
        landing.session.send(role, holder(0), 0, [MESSAGE])
    assert sum(r is not None for r in landing.control.logs[0]) == sent
    landing.session.send(role, holder(0), 0, [MESSAGE])
    assert len(opened) == 2


def test_a_writer_whose_transaction_was_interrupted_is_not_used_again(landing: FakeLanding, opened: list[str]) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    landing.session.send("commit", holder(0), 0, [MESSAGE])
    landing.control.before_send = interrupt
    with pytest.raises(KeyboardInterrupt):
        landing.session.send("commit", holder(0), 0, [MESSAGE])
    landing.control.before_send = lambda _: None
    landing.session.send("commit", holder(0), 0, [MESSAGE])
    assert len(opened) == 2


def test_after_its_close_a_session_reports_nothing_more(landing: FakeLanding) -> None:
    landing.session.close()
    landing.session.close()
    assert landing.control.closed
    with pytest.raises(ClosedError, match="LC6220"):
        landing.session.send("commit", holder(0), 0, [MESSAGE])
    assert landing.control.logs == {}
    with pytest.raises(ClosedError):
        landing.session.tables.load("shop.rows")


@pytest.mark.parametrize("lent", [False, True])
def test_lent_tables_are_closed_by_their_owner(landing: FakeLanding, lent: bool) -> None:
    landing.open()
    with session_with(landing.session, lent) as session:
        assert session.tables.find("shop.rows") is not None
    if lent:
        assert session.tables.find("shop.rows") is not None
    else:
        with pytest.raises(ClosedError):
            session.tables.find("shop.rows")


def session_with(session: LandingSession, lent: bool) -> LandingSession:
    return LandingSession(
        landing=session.landing,
        kafka={},
        tables=session.tables,
        control=FakeControl(),
        source=session.source,
        lent=lent,
    )


def test_connections_are_made_of_the_landing_without_contact() -> None:
    landing = landing_of(name="rows", topics=["a", "b"], table="shop.rows", control_topic="own")
    own = LandingSession.connect(landing, {"bootstrap.servers": "nobody:1"}, {"type": "sql"}, log=print)
    with own:
        assert own.control.name == "own"
        assert not own.lent


def test_landings_of_one_catalog_name_a_table_alike_and_those_of_two_do_not(landing: FakeLanding) -> None:
    one, other = landing.session, landing.connect(name="others", topics="others")
    assert one.key("shop.rows") == other.key("shop.rows") != one.key("shop.other")
    elsewhere = landing.connect(iceberg_conn_id="another")
    assert elsewhere.key("shop.rows") != one.key("shop.rows")
    elsewhere.catalog_key = one.landing.connections.iceberg
    assert elsewhere.key("shop.rows") == one.key("shop.rows")
    assert str(one.key("shop.rows")) == "shop.rows"


RUN = RunIdentity(deployment="d", dag_id="dag", run_id="run", number=1)


def test_a_retry_has_the_cycle_of_its_run(landing: FakeLanding) -> None:
    assert cycle_id_of(landing.session, replace(RUN, attempt="2")) == cycle_id_of(landing.session, RUN)


def test_every_other_run_landing_and_stream_has_a_cycle_of_its_own(landing: FakeLanding) -> None:
    others = [replace(RUN, deployment="x"), replace(RUN, dag_id="x"), replace(RUN, run_id="x"), replace(RUN, number=2)]
    ids: set[UUID] = {cycle_id_of(landing.session, run) for run in (RUN, *others)}
    ids.add(cycle_id_of(landing.connect(name="others"), RUN))
    backfill = landing.connect()
    backfill.lane = "backfill"
    ids.add(cycle_id_of(backfill, RUN))
    assert len(ids) == 7


def test_a_sender_speaks_for_its_landing_stream_and_cycle(landing: FakeLanding) -> None:
    commit_id = uuid4()
    sender = landing.connect(control_events="1.10").sender("write", commit_id)
    assert (sender.landing, sender.lane, sender.role, sender.commit_id, sender.form) == (
        "rows",
        "live",
        "write",
        commit_id,
        "1.10",
    )


def test_another_landing_on_the_same_partition_is_not_observed(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing()
    landing.open()
    other = landing.connect(name="others")
    found = [e for _, entries in all_entries(other) for e in entries]
    assert found == []
