# SPDX-License-Identifier: Apache-2.0
"""`lakecommit maintain sweep` as a task, of snapshots and of files, for a DAG that keeps tables small.

Contract: thin over :mod:`~airflow_provider_lakecommit.operations.maintenance.expire` and
:mod:`~airflow_provider_lakecommit.operations.maintenance.sweep`, in this order: files of expired snapshots are
candidates of the sweep. Safe alongside the runs that land. A retry does the rest.

Failure story: a failed table fails the task at the end, with its name; the others are done by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.landing import Landing, span_of
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import LandingSession

__all__ = ["MaintainTableOperator"]


class MaintainTableOperator(LandingTask):
    """Expire old snapshots of the tables of a landing, and remove files that no slice needs any more.

    A snapshot that a ledger needs is never expired. Returns the output of `lakecommit maintain sweep --json` without
    the files, and under ``snapshots`` the output with `--snapshots`.

    :param landing: the landing, or the path of its YAML spec
    :param files_older_than: younger files stay; a timedelta, seconds, or a text such as ``3d``. Not less than the
        landing's ``completion_timeout``. ``None``: remove no files
    :param snapshots_older_than: younger snapshots stay, likewise. ``None``: expire no snapshots
    :param keep_snapshots: number of the newest snapshots that always stay
    :param dry_run: change nothing, log what would be done

    .. seealso:: :ref:`howto/operator:MaintainTableOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        files_older_than: timedelta | str | float | None = timedelta(days=3),
        snapshots_older_than: timedelta | str | float | None = None,
        keep_snapshots: int = 1,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        if files_older_than is None and snapshots_older_than is None:
            raise SpecError(
                "LC8342",
                f"MaintainTableOperator {self.task_id!r}: give files_older_than, snapshots_older_than, or both",
            )
        self.files_older_than = None if files_older_than is None else span_of(files_older_than, "files_older_than")
        self.snapshots_older_than = (
            None if snapshots_older_than is None else span_of(snapshots_older_than, "snapshots_older_than")
        )
        self.keep_snapshots = keep_snapshots
        self.only_looks = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Expire, then sweep."""
        result: dict[str, Any] = {}
        wrong: list[str] = []
        with no_retry_in_vain(self), self.session() as session:
            if self.snapshots_older_than is not None:
                result["snapshots"] = self._expire(session, self.snapshots_older_than, wrong)
            if self.files_older_than is not None:
                result |= self._sweep(session, self.files_older_than, wrong)
            if wrong:
                raise TableError("LC8343", "; ".join(wrong))
        return result

    def _expire(self, session: LandingSession, older_than: timedelta, wrong: list[str]) -> dict[str, Any]:
        from airflow_provider_lakecommit.operations import expire

        found = list(expire(session, older_than=older_than, keep=self.keep_snapshots, remove=not self.only_looks))
        for f in found:
            self.log.info("%s", f.to_dict())
        wrong += [f"{f.table}: {f.error}" for f in found if f.error]
        newest = {f.table: None if f.newest is None else f.newest.isoformat() for f in found}
        tables = [{**f.to_dict(), "newest": newest[f.table]} for f in found]
        return {"tables": tables, "written": not self.only_looks}

    def _sweep(self, session: LandingSession, older_than: timedelta, wrong: list[str]) -> dict[str, Any]:
        from airflow_provider_lakecommit.operations import Garbage, least_age, sweep

        def told(table: str, garbage: Garbage) -> None:
            if self.only_looks:
                self.log.info("%s: %s %s bytes: %s", table, garbage.file.path, garbage.file.size, garbage.why)

        swept = sweep(
            session,
            older_than=least_age(self.landing, older_than),
            remove=not self.only_looks,
            told=told,
            progress=lambda t: self.log.info("%s: %s of %s files removed so far", t.table, t.removed, t.files),
        )
        for t in swept:
            self.log.info("%s", t.to_dict())
        wrong += [f"{t.table}: {t.error}" for t in swept if t.error]
        return {"tables": [t.to_dict() for t in swept], "removed": not self.only_looks}
