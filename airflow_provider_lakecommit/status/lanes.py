# SPDX-License-Identifier: Apache-2.0
"""Checks of `verify` on ledgers that take over ranges, of closed backfills or of a former Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from airflow_provider_lakecommit.core import Coverage, LedgerSection, RangeSet, is_filled

Sections = Mapping[tuple[str, str], LedgerSection]


def filled_of(closed: Iterable[tuple[str, str]], known: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the known ledger entries that have, or get, the ranges of closed backfills."""
    landings = {landing for landing, _ in closed}
    return {(landing, lane) for landing, lane in known if landing in landings and is_filled(lane)}


def closed_wrongly(closed: set[tuple[str, str]], before: Sections, after: Sections, had: Coverage) -> Iterator[str]:
    """Yield closed backfills whose ranges differ from the growth of the landing's filled entry.

    :param closed: landings and backfills that a snapshot claims to have closed
    :param had: coverage of the table according to the snapshot
    """
    yield from (
        f"backfill {lane!r} of landing {landing!r} is reported as closed, but is still in the ledger"
        for landing, lane in sorted(closed)
        if (landing, lane) in after
    )
    for landing in sorted({landing for landing, _ in closed}):
        theirs = Coverage.union(before[key].covered for key in closed if key[0] == landing and key in before)
        was, now = (_covered(sections, landing) for sections in (before, after))
        if now - was - had != theirs - was or was - now:
            yield f"landing {landing!r} closed backfills with {theirs}, but its filled ranges went from {was} to {now}"


def _covered(sections: Sections, landing: str) -> Coverage:
    return Coverage.union(s.covered for (name, lane), s in sections.items() if name == landing and is_filled(lane))


def rescanned(before: LedgerSection, after: LedgerSection) -> Coverage:
    """Return the ranges that a landing continues after without having landed them."""
    return Coverage({p: RangeSet.of((min(before.end(p), o), o)) for p, o in after.starts.items() if p in before.starts})


def moved_wrongly(before: Sections, after: Sections, key: tuple[str, str], moved: tuple[str, str]) -> Iterator[str]:
    """Yield what is wrong with a ledger entry in the snapshot that moved one to another Kafka cluster. Another entry
    has exactly the ranges of the moved one then; a landing that moves back has its former ranges again.

    :param key: landing and stream
    :param moved: the stream that moved, and the one that keeps its ranges
    """
    landing, lane = key
    goes_on, kept = (landing, moved[0]), (landing, moved[1])
    if key == kept:
        had, has = before.get(goes_on), after.get(kept)
        if has is None or had is None or had.covered != has.covered:
            yield f"landing {landing!r} has moved, but its ledger does not keep the ranges of the old cluster"
        return
    if key == goes_on or key not in before:
        return
    lost = before[key].covered - (after[key].covered if key in after else Coverage())
    if key not in after and goes_on in after:
        lost -= after[goes_on].covered
    if lost:
        yield f"the ledger of landing {landing!r} stream {lane!r} lost {lost}"


def moved_text(kept: LedgerSection | None, before: LedgerSection, after: LedgerSection) -> str:
    ends = ", ".join(f"{p} {after.end(p)}" for p in sorted(after.starts))
    left = before.covered - (Coverage() if kept is None else kept.covered)
    lost = f"; {left} of the old one is not kept" if left else ""
    return f"on cluster {after.cluster_id}, instead of {before.cluster_id}: it continues at {ends}{lost}"
