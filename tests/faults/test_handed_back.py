# SPDX-License-Identifier: Apache-2.0
"""A table that is the connector's again: runs of the landing are skipped and report it, and nothing else lands
in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import AdoptedSink
from airflow_provider_lakecommit.core.planning.admission import resumed_by
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import set_section
from airflow_provider_lakecommit.operations.decisions.pause import resume
from airflow_provider_lakecommit.operations.kafka_connect.hand_back import _handed
from airflow_provider_lakecommit.status.status import read_status
from tests.faults.test_lanes import lane
from tests.support.world import World, records

pytestmark = pytest.mark.faults

DECISION = Decision(command="resume", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")


class Connector:
    """What the hand-back asks of one."""

    name = "orders-sink"


@pytest.fixture
def handed(make_world: Callable[..., World], produce: Callable[..., object]) -> World:
    world = make_world(1)
    produce(world.landing.topics, records(0, 20), partition=0)
    world.settle()
    own = AdoptedSink(connector="orders-sink", group="connect-orders-sink", since={}, sequence=0)
    with world.session() as session:
        for table in world.landing.tables:
            set_section(
                session.tables,
                table,
                world.landing.name,
                "live",
                lambda now: _handed(session, Connector(), now and replace(now, sink=own), 0),  # type: ignore[arg-type]
            )
    produce(world.landing.topics, records(20, 10), partition=0)
    return world


def test_runs_are_skipped_with_a_reason_and_land_nothing(handed: World) -> None:
    for _ in range(2):
        closed = handed.run()
        assert not closed.published
        assert "orders-sink" in str(closed.reason)
    handed.check(Counter(range(20)))
    assert "lakecommit resume" not in str(closed.reason)
    with handed.session() as session:
        suspended = read_status(session).suspended
    assert "orders-sink" in suspended
    message = "`lakecommit connect adopt`, or LandingOperationOperator(operation='connect adopt')"
    assert resumed_by(suspended) == message


def test_neither_resume_nor_a_stream_lands_next_to_the_connector(handed: World) -> None:
    with handed.session() as session, pytest.raises(LedgerError, match=r"lakecommit connect adopt SPEC.*LC7041"):
        resume(session, DECISION)
    with pytest.raises(LedgerError, match=r"handed back|LC7214|LC7222|LC7224"):
        lane(handed, "0=20-30").run()
    handed.check(Counter(range(20)))
