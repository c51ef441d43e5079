# SPDX-License-Identifier: Apache-2.0
"""Publish what has landed on a branch: after its checks, ``main`` moves to it.

Contract: the last step of a commit, before COMMIT_COMPLETE, for landings with ``publish.checks``. All checks of all
tables pass first; then the tables are published one by one, the data table last. The branches are the only state: the
next commit checks and publishes what ``main`` lacks, even after a crash in between. A table whose new snapshots change
no row is published without a check.

Failure story: a check that returns rows, or cannot be run, fails the commit: ``main`` stays as it is, the cycle stays
open, and the failure is in the log like that of any other commit, so that the sensor holds downstream runs and planning
stops by the same rules. The rows stay on the branch until a later check passes, or a user decides (`reset blocked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import RESET_BLOCKED
from airflow_provider_lakecommit.cycle.plan.resume import snapshot_of
from airflow_provider_lakecommit.cycle.results import PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import Unpublished, ancestry, move_main, require_together, unpublished

MOST_SHOWN = 3
"""Checks that a message names; the log names each."""
Ahead = Mapping[str, tuple[Table, Unpublished]]


def audit(
    session: LandingSession, own: Sequence[PublishedSnapshot], exclusive: Callable[[str, Callable[[], bool]], bool]
) -> tuple[PublishedSnapshot, ...]:
    """Check and publish what the branches have that ``main`` lacks; returns what ``main`` has by this commit.

    :param own: what the cycle has landed on the branches
    :param exclusive: runs the request for a table in its turn
    :raises TableError: a check found wrong rows, or could not be run
    :raises LedgerError: ``main`` cannot move to a branch
    :raises LakecommitError: the catalog or the storage cannot be reached
    """
    landing = session.landing
    if not landing.checks:
        return (*own,)
    ahead = unpublished_of(session)
    for name, (_, found) in ahead.items():
        require_together(found, name, landing.branch)
    if wrong := list(_refused(session, ahead)):
        rows = sum(found.rows for _, found in ahead.values())
        raise TableError(
            "LC6250",
            f"landing {landing.name}: {len(wrong)} of {len(landing.checks)} checks refuse {rows} rows, which stay on "
            f"branch {landing.branch}; main is as before: {'; '.join(wrong[:MOST_SHOWN])}. The next commit checks "
            f"again; `{RESET_BLOCKED} SPEC --release` publishes them all the same, `--drop` takes them off the branch",
        )
    moved: list[PublishedSnapshot] = []
    for name in sorted(ahead, key=lambda name: name == landing.table):
        found = ahead[name][1]
        if found.head_id is None:
            continue
        move = partial(move_main, session.tables, name, landing.branch, found.head_id, landing=landing.name)
        if exclusive(name, move):
            session.log(f"{name}: published snapshot {found.head_id} of branch {landing.branch} on main")
            records = (r for r in reversed(found.records) if r.publishes and r.landing == landing.name)
            moved += (snapshot_of(r, name, r.commit_id) for r in records if r.commit_id is not None)
    new = {p.snapshot_id for p in moved}
    # An earlier attempt of this commit may have moved main.
    before = []
    for one in (p for p in own if p.snapshot_id not in new):
        line = ancestry(session.tables.load(one.table).metadata, MAIN_BRANCH)
        before += [one] if any(s.snapshot_id == one.snapshot_id for s in line) else []
    return (*before, *moved)


def unpublished_of(session: LandingSession) -> Ahead:
    """Return the tables whose branch and ``main`` differ.

    :raises LakecommitError: a table cannot be read
    """
    out: dict[str, tuple[Table, Unpublished]] = {}
    for name in session.landing.tables:
        table = session.tables.find(name)
        # The next plan recreates a dropped branch.
        if table is not None and session.landing.branch in table.metadata.refs:
            found = unpublished(table.metadata, session.landing.branch)
            if found.snapshots or found.apart:
                out[name] = (table, found)
    return out


def _refused(session: LandingSession, ahead: Ahead) -> Iterator[str]:
    """Yield what the checks found, by check."""
    from airflow_provider_lakecommit.cycle.commit.row_check import RowsToCheck, wrong_rows

    for name, (table, found) in ahead.items():
        checks = [c for c in session.landing.checks if c.table == name]
        if checks and found.changes_rows:
            with RowsToCheck(name, table, found.released_id or found.main_id, found.head_id) as rows:
                for check in checks:
                    session.log(f"{name}: check {check.name}")
                    limit = session.landing.window.completion_timeout
                    if text := wrong_rows(check, rows, limit, session.log):
                        yield text
