# SPDX-License-Identifier: Apache-2.0
"""Ledgers of a landing that moved to another Kafka cluster: whether what it had of the old one is kept.

Contract: pure. What the lane had is in another lane after the move, all of it and nothing more. Of a cluster that a
landing comes back to, it has again what it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_lakecommit.core import Coverage, LedgerSection

__all__ = ["moved_text", "moved_wrongly"]

Key = tuple[str, str]
Sections = Mapping[Key, LedgerSection]


def moved_wrongly(before: Sections, after: Sections, key: Key, moved: tuple[str, str]) -> Iterator[str]:
    """What is off with a lane in the snapshot that moved one.

    :param key: landing and lane
    :param moved: the lane that moved, and the one that keeps what it had
    """
    landing, lane = key
    goes_on, kept = (landing, moved[0]), (landing, moved[1])
    if key == kept:
        had, has = before.get(goes_on), after.get(kept)
        if has is None or had is None or had.covered != has.covered:
            yield f"landing {landing!r} has moved, and its ledger does not keep what it had of the old cluster"
        return
    if key == goes_on or key not in before:
        return
    lost = before[key].covered - (after[key].covered if key in after else Coverage())
    if key not in after and goes_on in after:
        lost -= after[goes_on].covered
    if lost:
        yield f"the ledger of landing {landing!r} lane {lane!r} lost {lost}"


def moved_text(kept: LedgerSection | None, before: LedgerSection, after: LedgerSection) -> str:
    """What a move came to, for people."""
    ends = ", ".join(f"{p} {after.end(p)}" for p in sorted(after.starts))
    left = before.covered - (Coverage() if kept is None else kept.covered)
    lost = f"; {left} of the old one is not kept" if left else ""
    return f"on cluster {after.cluster_id}, in place of {before.cluster_id}: it goes on at {ends}{lost}"
