# SPDX-License-Identifier: Apache-2.0
"""Which ranges are compared, and the reason for each that is not."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection, ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.planning.truncation import Truncation
from airflow_provider_lakecommit.core.provenance import Provenance
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.decisions.stated import parse_ranges
from airflow_provider_lakecommit.operations.proof.chosen import (
    Sample,
    landed_ranges,
    sample_of,
    share_of,
    source_has,
    spread,
)

P, OLD = SourcePartition("t", 0, "new"), SourcePartition("t", 0, "old")
CONTROL = ControlPosition(cluster_id="c", topic="control", topic_id="i", partition=0, read_from=0, low=None)
NOW, BEFORE = "now", "before"


def over(*ranges: tuple[int, int], of: SourcePartition = P) -> Coverage:
    return Coverage({of: RangeSet.of(*ranges)})


def entry(generation: int, coverage: Coverage, *, marked: bool = True) -> Provenance:
    return Provenance.counted(generation, coverage, len(coverage), (1, 2, 3, 4) if marked else ())


def section(covered: Coverage, *entries: Provenance, **more: object) -> LedgerSection:
    values = {"evaluated": {NOW: covered}, **more}
    return LedgerSection(
        landing="l",
        lane="live",
        cluster_id="c",
        epoch=UUID(int=1),
        spec_version="s",
        starts={},
        covered=covered,
        control=CONTROL,
        provenance=entries,
        **values,  # type: ignore[arg-type]
    )


def test_every_covered_offset_is_compared_or_has_one_reason() -> None:
    covered = over((0, 100)) | over((0, 10), of=OLD)
    one = section(
        covered,
        entry(1, over((0, 10), of=OLD)),
        entry(2, over((0, 60))),
        entry(3, over((40, 50))),
        entry(2, over((60, 70)), marked=False),
        evaluated={BEFORE: over((20, 30)), NOW: over((0, 20), (30, 95)) | over((0, 10), of=OLD)},
    )
    other = replace(section(over((0, 10)), entry(9, over((0, 10)))), landing="other")
    letters = section(Coverage(), evaluated={}, replayed=over((15, 35)))
    ledgers, columns = {"rows": [one, other], "letters": [letters]}, dict.fromkeys(("rows", "letters"), (1, 2, 3, 4))
    found = landed_ranges(ledgers, one.landing, columns, over((10, 200)), NOW)["rows"]
    assert found.compared == {2: over((10, 15), (35, 40), (50, 60)), 3: over((40, 50))}
    assert found.others == {
        "gone": over((0, 10)) | over((0, 10), of=OLD),
        "other_rules": over((20, 30)),
        "unknown_rules": over((95, 100)),
        "replayed": over((15, 20), (30, 35)),
        "unmarked": over((60, 95)),
        "earlier": over((40, 50)),
    }
    assert found.unmarked
    assert found.generations == {1, 2, 3, 9}, "a topic of another cluster may have the same name"
    assert not landed_ranges({"rows": [other]}, other.landing, columns, over((0, 10)), NOW)["rows"].unmarked


def test_a_truncated_log_has_less() -> None:
    marks = {P: Watermark(start=10, stable=90, high=95)}
    at = ReadPosition(offset=90, leader_epoch=1)
    assert source_has(marks, []) == over((10, 90))
    assert source_has(marks, [Truncation(partition=P, position=at, end=50)]) == over((10, 50))
    assert source_has(marks, [Truncation(partition=P, position=at, end=None)]) == Coverage()


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("12.5%", 0.125), ("100%", 1.0), ("0%", None), ("1", None)])
def test_shares(text: str, share: float | None) -> None:
    assert share_of(text) == share


def test_a_sample_is_a_share_or_ranges() -> None:
    assert sample_of(["5%"], parse_ranges).share == 0.05
    assert sample_of(["t:0=5-9", "t:0=20-30"], parse_ranges).of(over((0, 25))) == over((5, 9), (20, 25))
    with pytest.raises(SpecError, match="LC8607"):
        sample_of(["5%", "t:0=5-9"], parse_ranges)
    with pytest.raises(SpecError, match="LC7039"):
        sample_of(["5"], parse_ranges)


def test_a_share_of_each_partition() -> None:
    other = SourcePartition("t", 1, "new")
    found = Sample(share=0.01).of(over((0, 1_000_000)) | over((5, 25), of=other))
    assert (len(found[P]), len(found[other])) == (10_000, 1)
    assert len(found[P].ranges) == 10
    assert (found[P].ranges[0].start, found[P].ranges[-1].end) == (0, 1_000_000)


@pytest.mark.parametrize("share", [0.0001, 0.013, 0.1, 0.5, 0.99, 1.0])
def test_pieces_are_spread_evenly_over_holes(share: float) -> None:
    ranges = RangeSet.of((0, 3_333), (5_000, 5_001), (7_000, 40_000))
    found = spread(ranges, share)
    assert found - ranges == RangeSet()
    expected = len(ranges) * share
    assert abs(len(found) - expected) <= 1
    assert isinstance(found.ranges[0], OffsetRange)
    assert (found.ranges[0].start, found.ranges[-1].end) == (0, 40_000)
