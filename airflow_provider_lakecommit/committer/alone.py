# SPDX-License-Identifier: Apache-2.0
"""No two landings of one table have the same topic: both would want every offset of it.

Contract: pure. Every change of a ledger is held to it (:func:`check_alone`), so that a landing under a misspelt name
gets no section next to the right one. A ledger in which two landings share a topic already can still be written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_provider_lakecommit.core import LedgerSection, SourcePartition
from airflow_provider_lakecommit.exceptions import TableError


def check_no_other(
    table: str, landing: str, sections: Iterable[LedgerSection], partitions: Collection[SourcePartition]
) -> None:
    """Check that no other landing has one of these partitions in a table.

    :raises TableError: one has
    """
    for s in sections:
        shared = sorted({p.topic for p in s.starts if p in partitions})
        if s.landing != landing and shared:
            raise TableError(
                "LC3003",
                f"landing {s.landing} lands {', '.join(shared)} into {table} already, so landing {landing} cannot. "
                f"Unless {landing} is a misspelt or new name of {s.landing}, give one of them another table; nothing "
                "was changed",
            )


def check_alone(table: str, before: Collection[LedgerSection], after: Collection[LedgerSection]) -> None:
    """Check that a change of a ledger gives no landing a partition that another landing of the table has.

    :raises TableError: it does
    """
    known = {(s.landing, p) for s in before for p in s.starts}
    landings = {s.landing for s in after}
    for landing in landings if len(landings) > 1 else ():
        new = {p for s in after if s.landing == landing for p in s.starts if (landing, p) not in known}
        if new:
            check_no_other(table, landing, after, new)
