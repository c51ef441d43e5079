# SPDX-License-Identifier: Apache-2.0
"""Ledgers of a landing that moved to another Kafka cluster: whether its ranges of the old one are kept.

Contract: pure. After the move another ledger entry has exactly the ranges of the moved one. A landing that moves back
to a cluster has its former ranges again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_lakecommit.core import Coverage, LedgerSection

Key = tuple[str, str]
Sections = Mapping[Key, LedgerSection]


def moved_wrongly(before: Sections, after: Sections, key: Key, moved: tuple[str, str]) -> Iterator[str]:
    """Yield what is wrong with a ledger entry in the snapshot that moved one.

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
