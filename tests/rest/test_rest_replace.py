# SPDX-License-Identifier: Apache-2.0
"""Ranges taken out of a table of a real REST catalog server: one overwrite, recognised whatever the answer says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace, replace_preview
from tests.rest.gateway import Answer, Forward, Gateway, Once, Request
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.rest

Produce = Callable[..., object]


@pytest.mark.parametrize("done", [None, False, True], ids=["told", "not applied", "applied in secret"])
def test_a_replacement_is_there_once(
    make_rest_world: Callable[..., World], produce: Produce, gateway: Gateway, done: bool | None
) -> None:
    world = make_rest_world(metadata_columns=True, partitions=1)
    produce(world.landing.topics, records(0, 60))
    world.run()

    def lost(_: Request, forward: Forward) -> Answer | None:
        if done:
            forward()
        return Answer(503, b"{}", "application/json")

    with world.session() as session:
        table = session.tables.load(world.landing.table)
        (partition,) = read_ledger(table.metadata).covered().parts
        coverage, commit = Coverage.of([(partition, OffsetRange(20, 50))]), uuid4()
        previewed = replace_preview(session, coverage)
        before = len(gateway.commits)
        with nullcontext() if done is None else gateway.doing(Once(lost)):
            first = replace(session, coverage, commit_id=commit, previews=previewed)[world.landing.table]
        again = replace(session, coverage, commit_id=commit, previews=previewed)[world.landing.table]
    assert first.made.replaced == previewed[0].replaced
    assert (first.requests, again.requests) == (2 if done is False else 1, 0)
    assert len(gateway.commits) - before == first.requests
    world.check(Counter([*range(20), *range(50, 60)]))
    check_verified(world)
    world.settle()
    world.check(Counter(range(60)))
