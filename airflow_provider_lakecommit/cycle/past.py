# SPDX-License-Identifier: Apache-2.0
"""What a run did before: its cycle as the log tells it, and what of its window the tables lack.

Contract: a cycle that is open is continued, with the plan that it has. One that is over (complete, closed by a later
cycle, or released because its run was gone) gets no more work; whoever asks for it is told where its window is. Nothing
is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry
from airflow_provider_lakecommit.core.model import Slice
from airflow_provider_lakecommit.core.view import CycleState, View, granted
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.rim import Look, Rim
from airflow_provider_lakecommit.cycle.write import read_entries

__all__ = ["Past", "look_back", "look_up", "seen", "ticket_of", "where_it_is"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A cycle that was found, and where it is. ``valid_through`` is what its COMPLETE said."""

    state: CycleState
    ticket: CycleTicket
    valid_through: datetime | None = None

    @property
    def granted(self) -> tuple[Slice, ...]:
        """Its slices, after what earlier claims took."""
        return granted(self.state.plan, self.state.claim)

    def opened(self, rim: Rim, view: View | None) -> Opened:
        """As the plan step tells it; without a ``view`` of the tables nothing is said of what they lack."""
        state = self.state
        if not state.over:
            note = "continues the cycle that this run opened before"
            return Opened(ticket=self.ticket, plan=state.plan, slices=self.granted, explain=(), note=note)
        lacking = view.lacking(self.granted) if view else ()
        note = where_it_is(rim, state, lacking if view else None)
        return Opened(
            ticket=self.ticket, plan=state.plan, slices=(), explain=(), finished=True, lacking=lacking, note=note
        )


def seen(rim: Rim, look: Look, commit_id: UUID) -> Past | None:
    """A cycle in a look."""
    state = look.view.cycles.get(commit_id)
    return None if state is None else Past(state=state, ticket=ticket_of(rim, state, look.partition, look.read_from))


def look_up(rim: Rim, ticket: CycleTicket) -> CycleState | None:
    """A cycle by its ticket, also where no ledger needs its part of the log any more."""
    log = rim.control.read(ticket.partition, ticket.read_from)
    entries = read_entries(log.records, rim.landing.name, rim.lane)
    return fold(entries, (), rim.landing.completion_timeout).cycles.get(ticket.commit_id)


def look_back(rim: Rim, commit_id: UUID) -> Past | None:
    """A cycle of this landing anywhere in the log, as far as its retention goes."""
    for partition in range(rim.control.describe().partitions):
        log = rim.control.read(partition, None)
        entries = _newest(read_entries(log.records, rim.landing.name, rim.lane), commit_id)
        view = fold(entries, (), rim.landing.completion_timeout)
        if (state := view.cycles.get(commit_id)) is not None:
            ends = (e.valid_through for e in entries if isinstance(e, CycleClosed) and e.commit_id == commit_id)
            ticket = ticket_of(rim, state, partition, state.since)
            return Past(state=state, ticket=ticket, valid_through=next(ends, None))
    return None


def _newest(entries: Sequence[Entry], commit_id: UUID) -> Sequence[Entry]:
    """The log from where this cycle was opened anew after its end, by a run that was made again under an old id."""
    begin, ended = 0, False
    for place, e in enumerate(entries):
        if e.commit_id == commit_id:
            if ended and isinstance(e, CycleOpened):
                begin, ended = place, False
            ended = ended or isinstance(e, CycleClosed)
    return entries[begin:]


def ticket_of(rim: Rim, state: CycleState, partition: int, read_from: int) -> CycleTicket:
    """What later tasks of the run find the cycle by."""
    return CycleTicket(
        landing=rim.landing.name,
        lane=rim.lane,
        commit_id=state.cycle.commit_id,
        slot=state.cycle.slot,
        partition=partition,
        read_from=read_from,
    )


def where_it_is(rim: Rim, state: CycleState, lacking: tuple[Slice, ...] | None) -> str:
    """What became of a cycle that is over; ``lacking`` is not known where no table could be read."""
    ended = (
        "was given up by a later plan, as its run was gone"
        if state.closed_at is None
        else f"was closed at offset {state.closed_at} of {rim.control.name}"
    )
    window = f"its window was {state.plan.coverage}" if state.plan.slices else "its window was empty"
    if lacking:
        window += f"; not landed of it: {', '.join(map(str, lacking))}"
    elif lacking is not None and state.plan.slices:
        window += ", nothing of it is missing"
    return f"this run's cycle {state.cycle.commit_id} {ended}; {window}"
