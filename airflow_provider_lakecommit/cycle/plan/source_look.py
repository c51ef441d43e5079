# SPDX-License-Identifier: Apache-2.0
"""A look at the source that is not older than the tables it is held against.

Contract: the source is looked at before the tables are read, and in between another run may land what came since; a
look that many landings share is up to some seconds old. A table that has more than the look saw calls for a new one, so
that only a log that is shorter *now* is taken for one that has lost records.

Failure story: that of the look.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core import LandingState
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.kafka import SourceState

__all__ = ["as_new_as_tables"]


def as_new_as_tables(session: LandingSession, landing_state: LandingState, source: SourceState) -> SourceState:
    """The look, or a newer one where a table has landed more than it saw.

    :raises SourceError: the topics cannot be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    ledgers = landing_state.ledgers.values()
    older = any(ledger.end(p) > mark.high for ledger in ledgers for p, mark in source.partitions.items())
    return session.source.watermarks() if older else source
