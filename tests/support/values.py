# SPDX-License-Identifier: Apache-2.0
"""Any value of the core that crosses a wire, and ways to corrupt its JSON, for property tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import (
    Budget,
    ControlPosition,
    Counts,
    Cycle,
    LedgerSection,
    Plan,
    ReadPosition,
    Slice,
    SliceCost,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
    TableTarget,
)
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.provenance import Provenance, RowsPerOffset
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.exceptions import WireError

STEADY = settings(derandomize=True, deadline=None)

COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=12)
UUIDS = st.uuids()
MOMENTS = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC))
PARTITIONS = st.builds(SourcePartition, topic=st.sampled_from(["a", "b"]), partition=st.integers(0, 3), topic_id=TEXT)
RANGES = st.tuples(COUNT, COUNT).map(lambda ab: OffsetRange(min(ab), max(ab)))
COVERAGES = st.dictionaries(
    PARTITIONS, st.lists(RANGES, max_size=4).map(lambda ranges: RangeSet.of(*ranges)), max_size=4
).map(Coverage)
OFFSETS = st.dictionaries(PARTITIONS, COUNT, max_size=4)
SPANS = st.lists(st.builds(Span, PARTITIONS, RANGES), max_size=4).map(lambda spans: tuple(sorted(spans)))
SECONDS = st.integers(0, 10**9).map(lambda millis: millis / 1000)
COSTS = st.builds(SliceCost, read_seconds=SECONDS, decode_seconds=SECONDS, write_seconds=SECONDS, bytes=COUNT)
BUDGETS = st.builds(Budget, max_records=COUNT, max_ratio=st.floats(0, 1))
COUNTS = st.builds(Counts, landed=COUNT, rejected=COUNT, filtered=COUNT, gaps=COUNT, skipped=COUNT)
CYCLES = st.builds(Cycle, commit_id=UUIDS, dag=TEXT, run=TEXT, number=COUNT, slot=COUNT)
POSITIONS = st.builds(
    ControlPosition, cluster_id=TEXT, topic=TEXT, topic_id=TEXT, partition=COUNT, read_from=COUNT, low=st.none() | COUNT
)
GENERATIONS = st.none() | COUNT
MARKED = st.sampled_from([(), (1, 2, 3, 4)])
PROVENANCE = st.builds(
    Provenance,
    generation=COUNT,
    coverage=COVERAGES,
    rows=COUNT,
    columns=MARKED,
    per_offset=st.sampled_from(RowsPerOffset),
)
_PLAIN_SECTIONS = st.builds(
    LedgerSection,
    landing=TEXT,
    lane=TEXT,
    cluster_id=TEXT,
    epoch=UUIDS,
    spec_version=TEXT,
    starts=OFFSETS,
    covered=COVERAGES,
    control=POSITIONS,
    record_bytes=COUNT,
    generation=COUNT,
    provenance=st.lists(PROVENANCE, max_size=3).map(tuple),
)


@st.composite
def sections(draw: st.DrawFn) -> LedgerSection:
    """With the covered ranges dealt out to some rules, and some to none; of some partitions leader epochs are known."""
    section = draw(_PLAIN_SECTIONS)
    rules = draw(st.sampled_from([("",), ("one",), ("one", "two"), ("", "one")]))
    evaluated: dict[str, Coverage] = {}
    for n, (p, r) in enumerate(section.covered.items()):
        if of := rules[n % len(rules)]:
            evaluated[of] = evaluated.get(of, Coverage()) | Coverage.of([(p, r)])
    behind = draw(st.sampled_from([None, 0, 1]))
    positions = {
        p: ReadPosition(offset=max(0, section.end(p) - (behind or 0)), leader_epoch=p.partition)
        for p in (() if behind is None else section.covered.parts)
    }
    return replace(section, evaluated=evaluated, positions=positions)


SECTIONS = sections()
TARGETS = st.builds(
    TableTarget,
    table=TEXT,
    uuid=UUIDS,
    location=TEXT,
    schema=TEXT,
    schema_id=COUNT,
    spec=TEXT,
    spec_id=COUNT,
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
    format_version=COUNT,
    epoch=UUIDS,
)
TABLE_REPORTS = st.builds(
    TableReport,
    table=TEXT,
    uuid=UUIDS,
    epoch=UUIDS,
    schema_id=COUNT,
    spec_id=COUNT,
    events=COUNT,
    files=COUNT,
    rows=COUNT,
    columns=MARKED,
)
DIRECTIVES = st.builds(
    Directives,
    released=st.lists(UUIDS, max_size=2).map(tuple),
    voided=st.lists(UUIDS, max_size=2).map(tuple),
    raised=st.lists(st.tuples(COVERAGES, BUDGETS), max_size=2).map(tuple),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    window = draw(UUIDS)
    cut = draw(st.lists(st.tuples(SPANS, st.lists(TEXT, max_size=2), COUNT, st.none() | BUDGETS), max_size=3))
    return Plan(
        landing=draw(TEXT),
        lane=draw(TEXT),
        spec_version=draw(TEXT),
        window_id=window,
        slices=tuple(
            Slice(slice_id=slice_id(window, s, t), group=g, spans=s, tables=tuple(t), budget=b) for s, t, g, b in cut
        ),
        targets=tuple(draw(st.lists(TARGETS, max_size=2))),
        ends=draw(OFFSETS),
        requested_at=draw(MOMENTS),
        left=draw(COUNT),
        reason=draw(st.none() | TEXT),
        refused=draw(st.none() | st.sampled_from(RefusalState)),
        vended=draw(st.dictionaries(TEXT, st.booleans(), max_size=2)),
        positions=draw(
            st.dictionaries(PARTITIONS, st.builds(ReadPosition, offset=COUNT, leader_epoch=COUNT), max_size=2)
        ),
        generation=draw(GENERATIONS),
    )


@st.composite
def reports(draw: st.DrawFn) -> SliceReport:
    return SliceReport(
        slice_id=draw(UUIDS),
        attempt=draw(UUIDS),
        window_id=draw(UUIDS),
        spec_version=draw(TEXT),
        spans=tuple(SpanReport(span=s, counts=draw(COUNTS)) for s in draw(SPANS)),
        tables=tuple(draw(st.lists(TABLE_REPORTS, max_size=2))),
        bytes=draw(COUNT),
        ignored_fields=draw(st.dictionaries(TEXT, COUNT, max_size=2)),
        rejects=draw(st.dictionaries(TEXT, COUNT, max_size=2)),
        reject_reason=draw(TEXT),
        blocked=draw(st.none() | TEXT),
        failed=draw(st.none() | TEXT),
        cost=draw(st.none() | COSTS),
        rules=draw(st.sampled_from(["", "rules"])),
        voids=draw(st.none() | UUIDS),
        generation=draw(GENERATIONS),
    )


def value_or_error(read: Callable[..., Any], *args: Any) -> Any:
    """What is read, or the :class:`WireError` that refuses it; any other exception goes through and fails the test."""
    try:
        return read(*args)
    except WireError as e:
        return e


FOREIGN = st.sampled_from([None, True, False, -1, 0, 1.5, 1e400, float("nan"), "", "x", "00", [], [None], {}, {"x": 1}])


@st.composite
def corrupted(draw: st.DrawFn, values: Any) -> Any:
    """The same JSON value with one part replaced by a foreign one, or left out."""
    out = deepcopy(json.loads(json.dumps(values)))
    places = list(_places(out))
    if not places:
        return draw(FOREIGN)
    container, key = draw(st.sampled_from(places))
    if draw(st.booleans()):
        container[key] = draw(FOREIGN)
    else:
        del container[key]
    return out


def _places(values: Any) -> Any:
    found = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in list(found):
        yield values, key
        yield from _places(value)
