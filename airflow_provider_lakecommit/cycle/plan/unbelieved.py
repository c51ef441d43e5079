# SPDX-License-Identifier: Apache-2.0
"""What records of the control log tell that are not believed: for people, before something is given up for good.

Contract: reads only, and decides nothing but whether a person is asked. Where a signing key is introduced, changed or
taken out too early, reports of before are not believed. What they are about is read again, and that loses nothing as
long as the source has it. Where it has it no more, its rows may lie in storage, reported: the way to them is to have
these records believed, and not to give their offsets up.

Failure story: whoever writes to the topic can forge such records. A word of a person (``--give-up-reported``) passes
them, and a plan that is refused for offsets that are gone is refused without them, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from airflow_provider_lakecommit.control import entry_of
from airflow_provider_lakecommit.core import (
    Coverage,
    LandingState,
    LedgerSection,
    Missing,
    SliceReported,
    SourcePartition,
    find_missing,
    gone,
)
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.cycle.session.named_log import log_of
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.signing import OTHER_KEY, UNSIGNED_BELOW

__all__ = ["missing_or_told", "unbelieved", "unbelieved_text"]


def unbelieved(session: LandingSession, table: str, section: LedgerSection) -> Coverage:
    """The ranges of which records that are not believed say that they are reported for a table, under the epoch of a
    section, and that it does not have. Topics that the section is not of are none of its business.

    :raises ControlTopicError: the control topic that the section names cannot be read
    """
    if not session.signed:
        return Coverage()
    with log_of(session, section.control) as control:
        records = control.read(section.control.partition, section.control.read_from).records if control else ()
    told = Coverage()
    for record in records:
        if record.doubt is None:
            continue
        entry = entry_of(replace(record, doubt=None), section.landing, section.lane)
        of = entry.report.table(table) if isinstance(entry, SliceReported) else None
        if isinstance(entry, SliceReported) and of is not None and of.epoch == section.epoch:
            told = told | entry.report.coverage
    return Coverage({p: told[p] for p in section.starts}) - section.covered


def unbelieved_text(session: LandingSession, ranges: Coverage, section: LedgerSection) -> str:
    """What to do about it."""
    at = section.control
    with log_of(session, at) as control:
        end = control.read(at.partition, BEYOND).end if control else at.read_from
    return (
        f"unverified records of {at.topic} report {ranges}. If they are from the "
        f"time before the signing key, accept them with `{UNSIGNED_BELOW}: {at.topic_id}/{at.partition}:{end}`"
        f"; if they are signed with an earlier key, state it as `{OTHER_KEY}`"
    )


def missing_or_told(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    claims: Coverage,
    diverged: Collection[SourcePartition] = (),
) -> Missing:
    """What is missing; where it is gone, with what the log may tell of it to who believes more of it.

    :param diverged: partitions of which nothing is planned
    :raises SourceError: the source has removed what the data table lacks
    """
    try:
        return find_missing(landing_state, source.partitions, claims, diverged)
    except SourceError as e:
        for name, ledger in landing_state.ledgers.items():
            told = unbelieved(session, name, ledger.section)
            if told := gone(told, source.partitions):
                raise SourceError(
                    "LC6019", f"{e}. Before that: {unbelieved_text(session, told, ledger.section)}"
                ) from e
        raise
