# SPDX-License-Identifier: Apache-2.0
"""The ledger of a table as one text in a snapshot summary: the sections of all its landings and lanes.

Readable JSON if small, compressed above 8 kB, refused above 64 kB (a summary is part of every metadata file). ``topic``
of the control position is for people; ids decide. Later versions may add keys; readers accept the version before
theirs.

A ledger without room omits first ``readings`` (the provenance): then ranges count as unmarked, and nothing is replaced
in them. Then ``judged`` and ``positions``: then rules and leader epochs are unknown. The newest rules have no ranges:
they have all that is covered and not of other rules. A position without a distance is at the ledger's end. ``replayed``
is never omitted: dead letters would be replayed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control.coverage import (
    coverage_from_json,
    coverage_to_json,
    offsets_from_json,
    offsets_to_json,
)
from airflow_provider_lakecommit.control.packed_text import CORRUPTION, count, pack, text, unpack
from airflow_provider_lakecommit.core import (
    COORDINATES,
    MAINTAIN,
    UNKNOWN,
    AdoptedSink,
    ControlPosition,
    Coverage,
    LedgerSection,
    Provenance,
    ReadPosition,
    RowsPerOffset,
    SourcePartition,
    evaluated_in,
    unevaluated,
)
from airflow_provider_lakecommit.exceptions import WireError

LEDGER_LIMIT = 64_000
_READINGS = frozenset({"readings"})
_OPTIONAL = _READINGS | {"judged", "positions", "ahead"}
"""Keys that a ledger without room for them goes without."""


def encode_ledger(sections: Sequence[LedgerSection]) -> str:
    entries = [_section_to_json(s) for s in sorted(sections, key=lambda s: s.key)]
    for optional in (frozenset[str](), _READINGS):
        try:
            return _packed(_without(entries, optional))
        except WireError:
            continue
    return _packed(_without(entries, _OPTIONAL))


def _without(sections: list[dict[str, Any]], keys: frozenset[str]) -> list[dict[str, Any]]:
    return [{k: v for k, v in s.items() if k not in keys} for s in sections]


def _packed(sections: list[dict[str, Any]]) -> str:
    return pack(
        {"sections": sections},
        what="the ledger of the table",
        limit=LEDGER_LIMIT,
        remedy=f"land fewer topic partitions or fewer landings into one table; `{MAINTAIN} SPEC --only ledger` takes "
        "out what is gone; nothing was committed",
    )


def decode_ledger(packed: str) -> tuple[LedgerSection, ...]:
    values = unpack(packed, what="the ledger of the table")
    try:
        sections = tuple(_section_from_json(s) for s in values["sections"])
        if len({s.key for s in sections}) < len(sections):
            raise ValueError("a stream has two entries")
        return sections
    except CORRUPTION as e:
        raise WireError("LC2357", f"the ledger of the table is corrupt: {type(e).__name__} {e}") from e


def _section_to_json(s: LedgerSection) -> dict[str, Any]:
    c = s.control
    rare: dict[str, Any] = {"judged": _evaluated_to_json(s)} if s.evaluated else {}
    rare |= _positions_to_json(s) if s.positions else {}
    rare |= {"ends": offsets_to_json(s.ends)} if s.ends else {}
    rare |= {"suspended": s.suspended} if s.suspended else {}
    rare |= {"sink": _sink_to_json(s.sink)} if s.sink else {}
    rare |= {"replayed": coverage_to_json(s.replayed)} if s.replayed else {}
    rare |= {"replaces": True} if s.replaces else {}
    rare |= {"generation": s.generation} if s.generation else {}
    rare |= {"readings": _readings_to_json(s)} if s.provenance else {}
    rare |= {"upsert": list(s.upsert_key)} if s.upsert_key else {}
    return rare | {
        "landing": s.landing,
        "lane": s.lane,
        "cluster": s.cluster_id,
        "epoch": str(s.epoch),
        "spec": s.spec_version,
        "starts": offsets_to_json(s.starts),
        "covered": coverage_to_json(s.covered),
        "record_bytes": s.record_bytes,
        "control": {
            "cluster": c.cluster_id,
            "topic": c.topic,
            "topic_id": c.topic_id,
            "partition": c.partition,
            "read_from": c.read_from,
            "low": c.low,
        },
    }


def _section_from_json(s: dict[str, Any]) -> LedgerSection:
    c = s["control"]
    covered = coverage_from_json(s["covered"])
    section = LedgerSection(
        landing=text(s["landing"]),
        lane=text(s["lane"]),
        cluster_id=text(s["cluster"]),
        epoch=UUID(s["epoch"]),
        spec_version=text(s["spec"]),
        starts=offsets_from_json(s["starts"]),
        ends=offsets_from_json(s.get("ends", [])),
        suspended=text(s.get("suspended", "")),
        replaces=bool(s.get("replaces", False)),
        generation=count(s.get("generation", 0)),
        upsert_key=tuple(map(text, s.get("upsert", ()))),
        provenance=_readings_from_json(s.get("readings", ()), covered),
        covered=covered,
        evaluated=_evaluated_from_json(s.get("judged", ()), covered),
        record_bytes=count(s["record_bytes"]),
        sink=_sink_from_json(s["sink"]) if "sink" in s else None,
        replayed=coverage_from_json(s.get("replayed", ())),
        control=ControlPosition(
            cluster_id=text(c["cluster"]),
            topic=text(c["topic"]),
            topic_id=text(c["topic_id"]),
            partition=count(c["partition"]),
            read_from=count(c["read_from"]),
            low=None if c["low"] is None else count(c["low"]),
        ),
    )
    return replace(section, positions=_positions_from_json(s, section))


def _sink_to_json(sink: AdoptedSink) -> dict[str, Any]:
    return {
        "connector": sink.connector,
        "group": sink.group,
        "since": offsets_to_json(sink.since),
        "sequence": sink.sequence,
        "lands": sink.lands,
        **({"landed": coverage_to_json(sink.landed)} if sink.landed else {}),
    }


def _sink_from_json(values: dict[str, Any]) -> AdoptedSink:
    return AdoptedSink(
        connector=text(values["connector"]),
        group=text(values["group"]),
        since=offsets_from_json(values["since"]),
        sequence=count(values["sequence"]),
        lands=values["lands"] is True,
        landed=coverage_from_json(values.get("landed", [])),
    )


def _readings_to_json(s: LedgerSection) -> list[Any]:
    """Return one list per entry: generation, columns, spread, rows, ranges. The longest has no ranges: it has all that
    is covered and not of others.
    """
    longest = max(s.provenance, key=lambda e: len(e.coverage.items()))
    rest = s.covered - Coverage.union(e.coverage for e in s.provenance if e is not longest)
    return [
        [
            *(e.generation, list(e.columns), e.per_offset.value, e.rows),
            None if e is longest and e.coverage == rest else coverage_to_json(e.coverage),
        ]
        for e in s.provenance
    ]


def _readings_from_json(values: Any, covered: Coverage) -> tuple[Provenance, ...]:
    stated = Coverage.union(coverage_from_json(ranges) for *_, ranges in values if ranges is not None)
    return tuple(_reading(*value, rest=covered - stated) for value in values)


def _reading(generation: Any, columns: Any, spread: Any, rows: Any, ranges: Any, *, rest: Coverage) -> Provenance:
    if len(columns) not in (0, len(COORDINATES)):
        raise ValueError(f"{len(columns)} columns do not name a record")
    return Provenance(
        generation=count(generation),
        columns=tuple(map(count, columns)),
        per_offset=RowsPerOffset(count(spread)),
        rows=count(rows),
        coverage=rest if ranges is None else coverage_from_json(ranges),
    )


def _evaluated_to_json(s: LedgerSection) -> list[Any]:
    """Return rules with their ranges, oldest first; the last ones have the rest."""
    *older, newest = s.evaluated
    pairs = [[rules, coverage_to_json(s.evaluated[rules])] for rules in older]
    if of_none := unevaluated(s.evaluated, s.covered):
        pairs.insert(0, [UNKNOWN, coverage_to_json(of_none)])
    return [*pairs, [newest, None]]


def _evaluated_from_json(values: Any, covered: Coverage) -> dict[str, Coverage]:
    """Read rules, limited to what is covered, and to the first of several claims."""
    known: dict[str, Coverage] = {}
    for rules, ranges in values:
        of = covered if ranges is None else coverage_from_json(ranges) & covered
        known[text(rules)] = known.get(rules, Coverage()) | unevaluated(known, of)
    known.pop(UNKNOWN, None)
    return evaluated_in(known, covered)


def _positions_to_json(s: LedgerSection) -> dict[str, Any]:
    """Return leader epochs, and the distance of their records from the section's end, if any: behind it or, where
    another lane has the ranges since they were landed again, ahead of it.
    """
    epochs = {p: at.leader_epoch for p, at in s.positions.items()}
    distance = {p: at.offset - s.last(p) for p, at in s.positions.items()}
    behind, ahead = ({p: n for p, n in distance.items() if (n > 0) is beyond} for beyond in (False, True))
    out = {
        "positions": [
            offsets_to_json({p: epochs[p] for p in behind}),
            offsets_to_json({p: -n for p, n in behind.items() if n}),
        ]
    }
    if ahead:
        out["ahead"] = [offsets_to_json({p: epochs[p] for p in ahead}), offsets_to_json(ahead)]
    return out


def _positions_from_json(values: dict[str, Any], s: LedgerSection) -> dict[SourcePartition, ReadPosition]:
    epochs, behind = map(offsets_from_json, values.get("positions", ([], [])))
    further, ahead = map(offsets_from_json, values.get("ahead", ([], [])))
    distance = {p: -behind.get(p, 0) for p in epochs} | {p: ahead[p] for p in further}
    found = epochs | further
    return {p: ReadPosition(offset=s.last(p) + n, leader_epoch=found[p]) for p, n in distance.items()}
