# SPDX-License-Identifier: Apache-2.0
"""Landings that parsed DAGs declare and that no control topic has: they never ran, or are not watched.

Read from Airflow's database, which keeps the outlet assets of serialized DAGs; a landing's asset has its name and table
(:mod:`~airflow_provider_lakecommit.assets`), and its tasks the declaration with the budgets. A declared landing is
visible to users who may read its DAG.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from sqlalchemy import select

from airflow_provider_lakecommit.core import PendingBudget, group_id
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.page.cycles import LandingCycles
from airflow_provider_lakecommit.page.landings import Board, LandingRow, PageTopic, key_of, ranked
from airflow_provider_lakecommit.page.stored_dags import OTHER_FORM, StoredDags, tasks_in
from airflow_provider_lakecommit.stall import Diagnosis, State, Verdict

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MOST, MOST_NEW = 10_000, 50
OURS = "airflow_provider_lakecommit."
LAST = '\n  "create": '
"""The last field of a rendered declaration."""
SCHEME = "lakecommit://"
UNREAD = "it was not observed so far, but not all control topics have been read yet"
NEVER = "it never ran: its DAG has no run yet"
UNSEEN = (
    "its DAG has run, but the newest records of the watched control topics have nothing of it: it opened no cycle for "
    "long, or its control topic is not in [lakecommit] page_topics"
)


@dataclass(frozen=True, slots=True)
class DeclaredLanding:
    """A landing of one DAG, which has runs if ``ran``; ``budget`` is ``None`` if unknown."""

    name: str
    table: str
    dag: str
    ran: bool
    budget: PendingBudget | None = None


class DeclaredQuery:
    def __init__(self) -> None:
        self._stored = StoredDags(declared_in)

    def __call__(self, session: Session) -> tuple[DeclaredLanding, ...]:
        """Return the current landings; if very many changed at once, the rest of their declarations follows later."""
        sent, asset, dag = TaskOutletAssetReference, AssetModel, DagModel
        has_run = select(DagRun.id).where(DagRun.dag_id == dag.dag_id).exists()
        query = (
            select(asset.extra, sent.dag_id, has_run)
            .join(sent, sent.asset_id == asset.id)
            .join(dag, dag.dag_id == sent.dag_id)
            .where(asset.uri.startswith(SCHEME), dag.is_stale.is_(False))
            .distinct()
            .limit(MOST)
        )
        rows = session.execute(query).all()
        stored = self._stored(session, {dag_id for _, dag_id, _ in rows}, MOST_NEW) if rows else {}
        found = (_declared(extra, dag_id, ran, stored.get(dag_id, {})) for extra, dag_id, ran in rows)
        return tuple(sorted({each for each in found if each is not None}, key=lambda d: str(astuple(d))))


def declared_in(_: str, stored: Any) -> dict[str, Landing]:
    """Return the landings of the tasks of Airflow's JSON of a DAG, by name."""
    try:
        texts = [t.get("declared") for t in tasks_in(stored) if str(t.get("_task_module", "")).startswith(OURS)]
    except OTHER_FORM:
        return {}
    found = (_landing_of(text) for text in texts if isinstance(text, str))
    return {landing.name: landing for landing in found if landing is not None}


def _landing_of(text: str) -> Landing | None:
    """Parse the text of a task; a long one is truncated within ``create``, which is last and not needed."""
    begin, end = text.find("{"), text.find(LAST)
    whole = text[begin:] if end < 0 else f"{text[begin:end].rstrip(', ')}}}"
    try:
        return Landing.from_flat(json.loads(whole))
    except (SpecError, TypeError, ValueError):
        return None


def _declared(extra: Any, dag: str, ran: bool, stored: Mapping[str, Landing]) -> DeclaredLanding | None:
    fields = extra if isinstance(extra, Mapping) else {}
    name, table = fields.get("landing"), fields.get("table")
    if not (isinstance(name, str) and isinstance(table, str)):
        return None
    whole = stored.get(name)
    budget = None if whole is None or whole.table != table else whole.pending_budget
    return DeclaredLanding(name, table, dag, ran, budget)


class DeclaredRows:
    """The rows of a board and of unobserved declared landings, worst first."""

    def __init__(self, read: Callable[[], tuple[DeclaredLanding, ...]]) -> None:
        self._read = read
        self._known: tuple[Mapping[str, LandingRow], tuple[DeclaredLanding, ...], bool, Mapping[str, LandingRow]] = (
            {},
            (),
            False,
            {},
        )
        self._rows: dict[tuple[DeclaredLanding, bool], LandingRow] = {}
        self._budgets: tuple[tuple[DeclaredLanding, ...], Mapping[tuple[str, str], PendingBudget]] = ((), {})

    def __call__(self, board: Board) -> Mapping[str, LandingRow]:
        declared, unread = self._read(), any(t.as_of is None for t in board.topics)
        if not declared:
            return board.rows
        observed, known, was_unread, rows = self._known
        if observed is not board.rows or known is not declared or was_unread is not unread:
            rows = self._merged(board.rows, declared, unread=unread)
            self._known = (board.rows, declared, unread, rows)
        return rows

    def find(self, board: Board, key: str) -> LandingRow | None:
        """Return the row of a present or former key: that of a declared landing stays valid after the landing was
        observed.
        """
        rows = self(board)
        if (row := rows.get(key)) is not None:
            return row
        meant = {(d.name, d.dag) for d in self._read() if _key(d) == key}
        return next((r for r in rows.values() if any((r.name, dag) in meant for dag in r.dags)), None)

    def budget(self, row: LandingRow, dags: Collection[str]) -> PendingBudget | None:
        """Return the limits on a landing's pending work, as the first readable of its DAGs declares it."""
        declared, (known, found) = self._read(), self._budgets
        if known is not declared:
            found = {(d.name, d.dag): d.budget for d in declared if d.budget is not None}
            self._budgets = declared, found
        own = (found.get((row.name, dag)) for dag in sorted(row.dags) if row.state.landing and dag in dags)
        return next((budget for budget in own if budget is not None), None)

    def _merged(
        self, rows: Mapping[str, LandingRow], declared: tuple[DeclaredLanding, ...], *, unread: bool
    ) -> Mapping[str, LandingRow]:
        landings = [r for r in rows.values() if r.state.landing]
        # The command line has no DAG to compare.
        observed = {(r.name, dag) for r in landings for dag in r.dags or ("",)}
        missing = [d for d in declared if not {(d.name, d.dag), (d.name, "")} & observed]
        made = {(d, unread): self._rows.get((d, unread)) or _row(d, unread=unread) for d in missing}
        self._rows = made
        return ranked([*rows.values(), *made.values()]) if made else rows


def _key(d: DeclaredLanding) -> str:
    return key_of(PageTopic("", d.dag), group_id(d.name))


def _row(d: DeclaredLanding, *, unread: bool) -> LandingRow:
    topic, group = PageTopic("", ""), group_id(d.name)
    reason = UNREAD if unread else UNSEEN if d.ran else NEVER
    clears = "its first run" if not d.ran else "a run that opens a cycle on a watched control topic"
    return LandingRow(
        control_topic=topic,
        group=group,
        key=_key(d),
        state=State(landing=True),
        found=Diagnosis(verdict=Verdict.UNKNOWN, reason=reason, clears=clears),
        cycles=LandingCycles(tables=(d.table,)),
        dags=(d.dag,),
        never_ran=not d.ran and not unread,
    )
