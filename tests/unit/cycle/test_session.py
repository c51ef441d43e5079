# SPDX-License-Identifier: Apache-2.0
"""One look: which part of the log is read, and what a session refuses once it was let go of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.cycle.open import empty_plan, new_cycle, send_start
from airflow_provider_lakecommit.cycle.prepare import prepare_table
from airflow_provider_lakecommit.cycle.session import LandingSession
from airflow_provider_lakecommit.exceptions import ClosedError
from tests.fakes.session import DATA, FakeLanding


def start(landing: FakeLanding, session: LandingSession, partition: int) -> int:
    cycle = new_cycle(session, landing.run_identity("x"), session.read_state(()).state)
    return send_start(session, partition, cycle, empty_plan(session, "a test"), Directives())


def test_a_later_look_keeps_what_was_read_and_reads_what_came_after(landing: FakeLanding) -> None:
    opened = landing.open()
    first = landing.session.read_state(())
    landing.report(opened)
    second = landing.session.read_state((), since=first)
    assert second.entries[: len(first.entries)] == first.entries
    assert len(second.entries) == len(first.entries) + 6
    assert (second.begin, second.read_from) == (first.begin, first.read_from)


def test_the_partition_that_a_ledger_names_wins_over_the_hash(landing: FakeLanding) -> None:
    landing.cycle()
    table = prepare_table(landing.session, DATA)
    assert table is not None
    before = landing.session.read_state([table.ledger])
    landing.control.partitions = 50
    assert landing.control.partition_for("lakecommit-rows") != before.partition
    assert landing.session.read_state([table.ledger]).partition == before.partition


def test_another_landing_on_the_same_partition_is_not_seen(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing()
    landing.open()
    other = landing.connect(name="others")
    found = [e for _, entries in other.all_entries() for e in entries]
    assert found == []


def test_a_thread_that_comes_back_after_the_end_says_nothing_more(landing: FakeLanding) -> None:
    opened = landing.open()
    before = landing.kinds()
    landing.session.close()
    assert landing.control.closed
    with pytest.raises(ClosedError, match="was let go of: the next attempt says what is to say"):
        start(landing, landing.session, opened.ticket.partition)
    assert landing.kinds() == before


def test_tables_that_were_lent_are_not_closed(landing: FakeLanding) -> None:
    lent = LandingSession(
        landing=landing.session.landing,
        kafka={},
        tables=landing.session.tables,
        control=landing.control,
        source=landing.source,
        lent=True,
    )
    lent.close()
    assert landing.session.tables.find("shop.nothing") is None
