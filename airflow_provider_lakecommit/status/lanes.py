# SPDX-License-Identifier: Apache-2.0
"""What `verify` checks of backfills: the rest of a closed one is in the ledger, and skipped offsets belong to a stream.

Contract: pure, on the ledgers of a snapshot and of the one before it.
"""

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


def gone_over(before: LedgerSection, after: LedgerSection) -> Coverage:
    """Return the ranges that a landing continues after without having landed them."""
    return Coverage({p: RangeSet.of((min(before.end(p), o), o)) for p, o in after.starts.items() if p in before.starts})
