# SPDX-License-Identifier: Apache-2.0
"""What a void would lose: reported slices that the source cannot give again."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.planning.voiding import irreplaceable, losses, losses_text, removed, rescued
from airflow_provider_lakecommit.core.state import AcceptedSlice
from tests.support.story import ORDERS, P0, P1, Ranges, Story, coverage, ledger

ANEW = SourcePartition("orders", 0, "topic-9")
LANDED = ledger(covered=[(P0, 0, 100)])


def accepted(*slices: Ranges) -> tuple[AcceptedSlice, ...]:
    story = Story()
    story.opens("a", slices)
    for ranges in slices:
        story.reports("a", ranges)
    return story.landing_state(LANDED).accepted[ORDERS]


def marks(start: int, high: int = 500) -> dict[SourcePartition, Watermark]:
    return {p: Watermark(start=start if p is P0 else 0, stable=high, high=high) for p in (P0, P1)}


def forward(to: int) -> object:
    """A word that goes on at an offset of the first partition."""

    def given_up(section: LedgerSection) -> Coverage:
        end = section.end(P0)
        return coverage([(P0, end, to)]) - section.covered if end < to else Coverage()

    return given_up


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (marks(250), [(P0, 100, 200)]),
        (marks(150), [(P0, 100, 150)]),
        (marks(100), []),
        (marks(0, high=180), []),
        ({ANEW: Watermark(start=0, stable=9, high=9)}, [(P0, 100, 200)]),
        ({}, [(P0, 100, 200)]),
    ],
    ids=["cut above", "cut inside", "there", "shorter", "made anew", "not read any more"],
)
def test_what_the_source_does_not_have_is_missing(found: dict[SourcePartition, Watermark], lost: Ranges) -> None:
    (one,) = accepted([(P0, 100, 200)])
    assert removed(one.coverage, found) == coverage(lost)
    assert bool(irreplaceable([one], found)) is bool(lost)


def test_of_a_table_that_a_slice_has_no_rows_for_nothing_is_lost() -> None:
    story = Story()
    story.opens("a", [[(P0, 100, 200)]])
    story.reports("a", [(P0, 100, 200)], files={})
    passed = story.landing_state(LANDED).accepted[ORDERS]
    assert irreplaceable(passed, marks(250)) == passed
    assert irreplaceable(passed, marks(250), ORDERS) == ()
    assert not rescued(ORDERS, LANDED.section, passed, marks(250), forward(250)).lost


def test_a_loss_names_partition_ranges_and_records() -> None:
    some = accepted([(P0, 100, 140)], [(P0, 140, 190)], [(P1, 0, 20)])
    found = losses(some, marks(150))
    assert losses_text(found) == "orders[0] [100, 150) (50 records)"
    assert losses_text(losses(some, marks(0))) == "nothing"


def test_what_the_source_has_is_not_rescued_but_voided() -> None:
    assert not rescued(ORDERS, LANDED.section, accepted([(P0, 100, 200)]), marks(0), forward(150)).published


def test_what_the_source_has_no_more_is_published_before_the_rest_is_given_up() -> None:
    found = rescued(ORDERS, LANDED.section, accepted([(P0, 100, 200)]), marks(250), forward(250))
    assert found.published == coverage([(P0, 100, 200)])
    assert (found.bridged, found.lost) == (Coverage(), ())


def test_what_waits_behind_a_hole_is_published_over_it_if_the_decision_gives_the_hole_up() -> None:
    waiting = accepted([(P0, 150, 200)])
    found = rescued(ORDERS, LANDED.section, waiting, marks(250), forward(250))
    assert found.bridged == coverage([(P0, 100, 150)])
    assert found.published == coverage([(P0, 150, 200)])
    kept_hole = rescued(ORDERS, LANDED.section, waiting, marks(250), forward(0))
    assert losses_text(kept_hole.lost) == "orders[0] [150, 200) (50 records)"
    assert not kept_hole.bridged


def test_what_the_source_has_is_published_too_where_another_table_is_drained() -> None:
    waiting = accepted([(P0, 100, 150)], [(P0, 170, 200)])
    found = rescued(ORDERS, LANDED.section, waiting, marks(0), forward(200), drained=True)
    assert found.published == coverage([(P0, 100, 150)])
    assert (found.bridged, found.lost) == (Coverage(), ())
