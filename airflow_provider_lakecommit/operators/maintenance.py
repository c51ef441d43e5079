# SPDX-License-Identifier: Apache-2.0
"""`lakecommit sweep` and `lakecommit expire` as tasks, for a DAG that keeps tables small.

Contract: thin over :mod:`~airflow_provider_lakecommit.maintenance.sweep` and
:mod:`~airflow_provider_lakecommit.maintenance.expire`. Safe beside the runs that land. A retry does what is left.

Failure story: a table that could not be done fails the task in the end, by its name; the others are done by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.declared.times import span_of
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ExpireSnapshotsOperator", "SweepOperator"]


class SweepOperator(LandingTask):
    """Remove the files below the tables of a landing that no slice needs any more.

    Returns what `lakecommit sweep --json` prints, without the files.

    :param landing: the landing, or the path of its YAML spec
    :param older_than: younger files are left alone; a timedelta, seconds, or a text as ``3d``. Not less than the
        landing's ``completion_timeout``
    :param dry_run: remove nothing, log what would be removed

    .. seealso:: :ref:`howto/operator:SweepOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        older_than: timedelta | str | float = timedelta(days=3),
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.older_than = span_of(older_than, "older_than")
        self.only_looks = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, and remove."""
        from airflow_provider_lakecommit.maintenance.sweep import Garbage, least_age, sweep

        def told(table: str, garbage: Garbage) -> None:
            if self.only_looks:
                self.log.info("%s: %s %s bytes: %s", table, garbage.file.path, garbage.file.size, garbage.why)

        with no_retry_in_vain(self), self.session() as session:
            swept = sweep(
                session,
                older_than=least_age(self.landing, self.older_than),
                remove=not self.only_looks,
                told=told,
                progress=lambda t: self.log.info("%s: %s of %s files removed so far", t.table, t.removed, t.files),
            )
            for t in swept:
                self.log.info("%s", t.to_dict())
            _check((t.table, t.error) for t in swept)
        return {"tables": [t.to_dict() for t in swept], "removed": not self.only_looks}


class ExpireSnapshotsOperator(LandingTask):
    """Expire old snapshots of the tables of a landing, never one that a ledger needs.

    Returns what `lakecommit expire --json` prints.

    :param landing: the landing, or the path of its YAML spec
    :param older_than: younger snapshots stay; a timedelta, seconds, or a text as ``7d``
    :param keep: so many of the newest stay, however old

    .. seealso:: :ref:`howto/operator:ExpireSnapshotsOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self, *, landing: Landing | str | Path, older_than: timedelta | str | float, keep: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.older_than = span_of(older_than, "older_than")
        self.keep = keep

    def execute(self, context: Context) -> dict[str, Any]:
        """Expire."""
        from airflow_provider_lakecommit.maintenance.expire import expire

        with no_retry_in_vain(self), self.session() as session:
            found = list(expire(session, older_than=self.older_than, keep=self.keep, remove=True))
            for f in found:
                self.log.info("%s", f.to_dict())
            _check((f.table, f.error) for f in found)
        newest = {f.table: None if f.newest is None else f.newest.isoformat() for f in found}
        return {"tables": [{**f.to_dict(), "newest": newest[f.table]} for f in found], "written": True}


def _check(errors: Any) -> None:
    if wrong := [f"{table}: {text}" for table, text in errors if text]:
        raise TableError("; ".join(wrong))
