# SPDX-License-Identifier: Apache-2.0
"""What other landings and lanes have reported for a table, before a rollback of the table ends their epochs too.

Contract: reads only. Nothing is known of landings that have another control topic, or another signing key: they are
told of the new epoch by the ledger, as of any other.

Failure story: a source that does not tell what it has is an error, where something is pending; of a topic that is gone
nothing can be read again, so that what is reported of it is kept.
"""

from __future__ import annotations

from airflow_provider_lakecommit.committer.ledger import LedgerState
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.core.voiding import irreplaceable, losses, losses_text
from airflow_provider_lakecommit.cycle.session import LandingSession
from airflow_provider_lakecommit.cycle.write import read_entries

__all__ = ["kept_of_others"]


def kept_of_others(session: LandingSession, name: str, state: LedgerState) -> str:
    """What others have reported for a table, is not in it, and their sources have no more: by name; empty if there is
    no such thing.

    :raises SourceUnavailableError: something is pending, and the source does not tell what it has
    """
    log, found = session.control.describe(), list[str]()
    for s in state.sections:
        there = (s.control.cluster_id, s.control.topic_id) == (log.cluster_id, log.topic_id)
        if not there or (s.landing, s.lane) == (session.landing.name, session.lane):
            continue
        records = session.control.read(s.control.partition, s.control.read_from).records
        entries = read_entries(records, s.landing, s.lane)
        ledger = TableLedger(table=name, uuid=state.table_uuid, section=s)
        pending = fold(entries, [ledger], session.landing.completion_timeout).accepted[name]
        topics = tuple(sorted({p.topic for a in pending for p in a.coverage.parts}))
        marks = session.source.watermarks(missing_ok=True, topics=topics).partitions if topics else {}
        if kept := irreplaceable(pending, marks, name):
            found.append(f"of landing {s.landing} ({s.lane}) {losses_text(losses(kept, marks))}")
    return "; ".join(found)
