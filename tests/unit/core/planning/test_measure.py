# SPDX-License-Identifier: Apache-2.0
"""What a window took, by its log, and the text that carries it."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.log import CycleOpened, Entry, SliceReported
from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.core.planning.measure import KEPT, WindowCost, measure, newest, to_text
from tests.support.effort import examples
from tests.support.story import ORDERS, P0, P1, STEADY, Story
from tests.support.values import FOREIGN, corrupted

A, B, C = [(P0, 0, 10)], [(P0, 10, 20)], [(P1, 0, 20)]
COSTS = st.builds(
    WindowCost,
    **dict.fromkeys(("records", "slices", "task_ms", "busy_ms"), st.integers(1, 2**63 - 1)),
    **dict.fromkeys(("idle_ms", "files", "bytes"), st.integers(0, 2**63 - 1)),
    full=st.booleans(),
    dear=st.dictionaries(st.text(max_size=5), st.integers(150, 1000), max_size=3),
)


def costing(story: Story, seconds: float, *, left: int = 0, but: dict[UUID, float] | None = None) -> Story:
    """Every slice so many, some attempts others; the plans left so many records."""

    def changed(e: Entry) -> Entry:
        if isinstance(e, CycleOpened):
            return replace(e, plan=replace(e.plan, left=left))
        if isinstance(e, SliceReported):
            own = (but or {}).get(e.report.attempt, seconds)
            spent = SliceCost(read_seconds=own / 2, decode_seconds=own / 4, write_seconds=own / 4, bytes=100)
            return replace(e, report=replace(e.report, cost=spent))
        return e

    story.entries = list(map(changed, story.entries))
    return story


def measured(story: Story, run: str = "a") -> WindowCost | None:
    return measure(story.landing_state(), ORDERS, [story.id(run)]).get(story.id(run))


def test_slices_are_at_work_up_to_their_reports() -> None:
    story = Story()
    story.opens("a", [A, B])  # at second 0; the reports at seconds 2 and 4
    story.reports("a", A)
    story.reports("a", B)
    assert measured(costing(story, 2.5, left=3)) == WindowCost(
        records=20, slices=2, task_ms=5000, busy_ms=4500, idle_ms=0, files=2, bytes=200, full=True
    )
    assert measured(costing(story, 0.5)) == WindowCost(
        records=20, slices=2, task_ms=1000, busy_ms=1000, idle_ms=3000, files=2, bytes=200, full=False
    )


def test_the_time_in_which_another_window_is_written_is_not_idle() -> None:
    story = Story()
    story.opens("a", [A])
    story.opens("b", [B])
    other = story.reports("a", A)  # at second 3
    story.reports("b", B)  # at second 5
    costing(story, 1.0, but={other: 1.5})
    found = measured(story, "b")
    assert found is not None
    assert (found.busy_ms, found.idle_ms) == (1000, 1500)


def test_what_is_in_the_ledger_already_counts_too() -> None:
    from tests.support.story import ledger

    story = Story()
    story.opens("a", [A, B])
    story.reports("a", A)
    story.reports("a", B)
    costing(story, 1.0)
    state = story.landing_state(ledger(covered=A))
    assert measure(state, ORDERS, [story.id("a")])[story.id("a")].records == 20


def test_partitions_with_dear_records_are_named() -> None:
    story = Story()
    story.opens("a", [A, C])
    dear = story.reports("a", A)
    story.reports("a", C)
    found = measured(costing(story, 1.0, but={dear: 4.0}))
    assert found is not None
    assert found.dear == {str(P0): 240}


def test_what_reported_no_cost_or_has_no_plan_in_the_log_is_not_measured() -> None:
    story = Story()
    story.opens("a", [A])
    story.reports("a", A)
    assert measured(story) is None
    costing(story, 1.0).entries.pop(0)
    assert measured(story) is None


@given(st.dictionaries(st.uuids(), COSTS, max_size=KEPT))
@settings(STEADY, max_examples=examples(100))
def test_what_is_written_is_read(costs: dict[UUID, WindowCost]) -> None:
    assert newest([None, to_text(costs)]) == tuple(reversed(costs.values()))


def test_of_a_window_in_two_snapshots_the_newer_text_counts_and_only_so_many() -> None:
    one = WindowCost(records=1, slices=1, task_ms=1, busy_ms=1, idle_ms=0, files=0, bytes=0, full=True)
    two = replace(one, records=2)
    assert newest([to_text({UUID(int=1): two}), to_text({UUID(int=1): one, UUID(int=2): one})]) == (two, one)
    many = [to_text({UUID(int=n): one}) for n in range(KEPT + 3)]
    assert len(newest(many)) == KEPT


@given(st.data())
@settings(STEADY, max_examples=examples(300))
def test_what_is_no_measurement_is_none(data: st.DataObject) -> None:
    text = to_text({UUID(int=1): data.draw(COSTS)})
    spoilt = json.dumps(data.draw(corrupted(json.loads(text))))
    assert all(isinstance(c, WindowCost) and c.busy_ms > 0 for c in newest([spoilt]))
    newest([json.dumps(data.draw(FOREIGN))])


@pytest.mark.parametrize("text", ["", "{", "[]", "1e999", '{"a": [1]}', "[" * 100_000])
def test_a_text_that_cannot_be_read_stops_nothing(text: str) -> None:
    assert newest([text]) == ()
