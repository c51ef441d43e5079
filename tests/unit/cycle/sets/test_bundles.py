# SPDX-License-Identifier: Apache-2.0
"""Groups of many landings dealt out to a few tasks: all of them, evenly, and alike each time."""

from __future__ import annotations

import json
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cycle.results import CycleTicket, GroupTicket
from airflow_provider_lakecommit.cycle.sets.bundles import BASE_RECORDS, BundledGroup, dealt, label_of
from airflow_provider_lakecommit.landing import Landing


def a_group(number: int, records: int) -> BundledGroup:
    landing = Landing(name=f"shop.t{number}", topics=f"t{number}", table=f"lake.t{number}")
    cycle = CycleTicket(landing=landing.name, lane="live", commit_id=UUID(int=number), slot=0, partition=0, read_from=0)
    return BundledGroup(landing=landing, ticket=GroupTicket(cycle=cycle, group=0, slices=1, records=records))


@given(st.lists(st.integers(1, 10**6), max_size=40), st.integers(1, 8))
def test_every_group_is_in_one_bundle_and_no_bundle_is_far_from_the_lightest(records: list[int], tasks: int) -> None:
    groups = [a_group(n, r) for n, r in enumerate(records)]
    bundles = dealt(groups, tasks)
    assert len(bundles) == min(tasks, len(groups))
    names = [each.landing.name for bundle in bundles for each in bundle]
    assert sorted(names) == sorted(each.landing.name for each in groups)
    loads = [sum(each.ticket.records + BASE_RECORDS for each in bundle) for bundle in bundles]
    largest = max((r + BASE_RECORDS for r in records), default=0)
    assert not loads or max(loads) - min(loads) <= largest
    assert dealt(groups[::-1], tasks) == bundles


def test_a_group_comes_back_from_plain_values() -> None:
    group = a_group(3, 7)
    assert BundledGroup.from_dict(json.loads(json.dumps(group.to_dict()))) == group


def test_a_bundle_is_called_by_what_is_in_it() -> None:
    assert label_of([a_group(1, 5)]) == "5 records of shop.t1"
    assert label_of([a_group(2, 5), a_group(1, 6)]) == "11 records of shop.t1 and 1 more"
