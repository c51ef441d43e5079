# SPDX-License-Identifier: Apache-2.0
"""The plan of `verify --source`: the landed ranges to compare, in slices, and the reasons for the others.

Contract: reads ledgers, marks of the source and its retention; writes nothing. The plan reports its cost before records
are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    Role,
    TableTarget,
    by_tables,
    in_doubt,
    role_of,
    rules_of,
    schemas_of,
)
from airflow_provider_lakecommit.cycle import LandingSession, target_of
from airflow_provider_lakecommit.exceptions import SourceError, TableError
from airflow_provider_lakecommit.iceberg import mark_columns, read_ledger
from airflow_provider_lakecommit.operations.proof.chosen import REASONS, Sample, TableRanges, landed_ranges, source_has

SLICE_BYTES = 64 << 20
"""Estimated bytes of record values in a slice, whose rows are compared in memory."""
SLICE_RECORDS, UNKNOWN_RECORDS = 250_000, 50_000
RETENTION_SECONDS = 5.0
NOT_LANDED = "stated ranges are not landed, so nothing was compared of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPlan:
    """The comparison to make: ``readings`` are its ranges by generation and tables, ``unlanded`` are stated ranges that
    the leading table's ledger lacks.
    """

    tables: Mapping[str, Table]
    targets: tuple[TableTarget, ...]
    ranges: Mapping[str, TableRanges]
    readings: Mapping[int, Mapping[tuple[str, ...], Coverage]]
    sections: Sequence[LedgerSection]
    compacted: frozenset[str]
    record_bytes: int
    sampled: bool
    unlanded: str = ""

    @property
    def coverage(self) -> Coverage:
        return Coverage.union(c for parts in self.readings.values() for c in parts.values())

    @property
    def per_slice(self) -> int:
        if not self.record_bytes:
            return UNKNOWN_RECORDS
        return max(1, min(SLICE_RECORDS, SLICE_BYTES // self.record_bytes))

    def lines(self) -> Iterator[str]:
        """Yield the cost as lines of text."""
        records = len(self.coverage)
        size = f", about {records * self.record_bytes:,} bytes" if self.record_bytes else ""
        yield f"reads at most {records:,} records{size} again from the source, in slices of {self.per_slice:,}"
        if self.sampled:
            yield f"  sample: {self.coverage}"
        if self.unlanded:
            yield f"  {NOT_LANDED}: {self.unlanded}"
        for name, found in self.ranges.items():
            for reason, c in found.others.items():
                yield f"  {name}: {len(c):,} offsets are not compared, {REASONS[reason]}"


def proof_plan(session: LandingSession, sample: Sample) -> ProofPlan:
    """Return which ranges to compare; writes nothing."""
    landing = session.landing
    tables = {name: t for name in landing.tables if (t := session.tables.find(name)) is not None}
    states = {name: read_ledger(t.metadata, landing.branch) for name, t in tables.items()}
    sections = {n: [s for s in state.sections if s.landing == landing.name] for n, state in states.items()}
    targets = tuple(target_of(n, t, UUID(int=0)) for n, t in tables.items())
    source = session.source.watermarks(missing_ok=True)
    positions = [
        at for own in sections.values() for s in own for at in s.positions.items() if at[0] in source.partitions
    ]
    has = source_has(source.partitions, session.source.diverged(in_doubt(positions, source.partitions)))
    rules = rules_of(landing.decoding_hash, *schemas_of(landing.destinations, targets))
    marks = {n: mark_columns(t.schema(), role_of(landing.destinations, n)) for n, t in tables.items()}
    ranges = landed_ranges({n: state.sections for n, state in states.items()}, landing.name, marks, has, rules)
    for name, found in ranges.items():
        if (
            role_of(landing.destinations, name) is Role.ROWS
            and found.covered
            and found.covered == found.others.get("unmarked")
        ):
            raise TableError(
                "LC8603",
                f"{name}: its rows do not name their record, so they cannot be compared with the source: add the "
                "columns kafka_topic, kafka_partition, kafka_generation and kafka_offset (`columns.metadata`); "
                "ranges that are landed from then on can be compared",
            )
    chosen = {n: {g: sample.of(c) for g, c in found.compared.items()} for n, found in ranges.items()}
    generations = sorted({g for by in chosen.values() for g in by})
    readings = {g: by_tables({n: by[g] for n, by in chosen.items() if by.get(g)}) for g in generations}
    if sample.ranges and not any(readings.values()):
        others = [item for found in ranges.values() for item in found.others.items()]
        why = "; ".join(dict.fromkeys(REASONS[name] for name, c in others if sample.of(c))) or "they are not landed"
        raise SourceError("LC8604", f"landing {landing.name}: nothing of the stated ranges can be compared: {why}")
    session.source.request_retention()
    retentions = session.source.retentions(RETENTION_SECONDS)
    return ProofPlan(
        tables=tables,
        targets=targets,
        ranges=ranges,
        readings={g: parts for g, parts in readings.items() if parts},
        sections=sections.get(landing.table, ()),
        compacted=frozenset(t for t in landing.topic_names if t not in retentions or retentions[t].compacted),
        record_bytes=max((s.record_bytes for own in sections.values() for s in own), default=0),
        sampled=not sample.is_all,
        unlanded=", ".join(sample.missing(ranges[landing.table].covered)) if landing.table in ranges else "",
    )
