# SPDX-License-Identifier: Apache-2.0
"""What becomes of a slice that one table does not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.core.state import AcceptedSlice
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.commit.refusals import Refusals
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import Grounds
from tests.fakes.session import DATA, DEAD, P0, FakeLanding


@pytest.fixture
def landing(make_landing: Callable[..., FakeLanding]) -> FakeLanding:
    """Reported for two tables, in none of them."""
    landing = make_landing(dead_letter_table=DEAD)
    landing.report(landing.open())
    return landing


def pending(landing: FakeLanding, table: str) -> tuple[AcceptedSlice, ...]:
    return landing.session.read_state(prepare_for_commit(landing.session).ledgers).state.accepted[table]


@pytest.mark.parametrize("grounds", [Grounds.EPOCH, Grounds.OVERLAP])
def test_what_one_table_does_not_want_any_more_is_not_taken_from_the_others(
    landing: FakeLanding, grounds: Grounds
) -> None:
    landing.source.starts = {P0: 20}
    refusals = Refusals(session=landing.session, table=DEAD, voided={})
    slices = pending(landing, DEAD)
    for each in slices:
        refusals.refuse(each, grounds, "it is over")
    assert refusals.voided == {}
    assert list(refusals.not_taken) == [a.report.attempt for a in slices]
    assert refusals.of(slices) == []
    refusals.check()
    landing.close()
    assert len(pending(landing, DATA)) == 0


def test_what_can_be_read_again_is_voided_for_all(landing: FakeLanding) -> None:
    refusals = Refusals(session=landing.session, table=DEAD, voided={})
    slices = pending(landing, DEAD)
    refusals.refuse(slices[0], Grounds.SCHEMA, "a column that it has no more")
    assert list(refusals.voided) == [slices[0].report.attempt]
    assert refusals.not_taken == {}
