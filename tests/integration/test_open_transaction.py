# SPDX-License-Identifier: Apache-2.0
"""`status` where a producer left a transaction open: a landing that stands still says by what."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.status.status import read_status
from airflow_provider_lakecommit.status.status_rules import StatusVerdict, status_verdict
from tests.support.world import World, records

pytestmark = pytest.mark.integration

HOUR = 3_600_000


@pytest.mark.parametrize(("ago", "verdict"), [(HOUR, StatusVerdict.BEHIND), (0, StatusVerdict.WELL)])
def test_a_transaction_that_outlives_its_time_is_reported_and_one_that_is_young_is_not(
    make_world: Callable[..., World], produce: Callable[..., object], ago: int, verdict: StatusVerdict
) -> None:
    world = make_world()
    then = int(time.time() * 1000) - ago
    produce(world.landing.topics, records(0, 10), 0, timestamp=then)
    world.run("first")
    produce(world.landing.topics, records(10, 5), 0, transactional=True, outcome="open", timestamp=then)
    # What comes behind it is held up, too, however young it is.
    produce(world.landing.topics, records(15, 5), 0)
    with world.session() as session:
        found = read_status(session)
    assert [p.open_transactions for p in found.partitions] == [10, 0]
    standing, why = status_verdict(found)
    assert standing is verdict
    if verdict is StatusVerdict.BEHIND:
        assert f"has blocked 10 offsets of {world.landing.topics}[0] from 10 on for more than 20 minutes" in why
        assert "find-hanging" in why
