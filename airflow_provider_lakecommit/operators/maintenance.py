# SPDX-License-Identifier: Apache-2.0
"""`lakecommit maintain` as a task, for a DAG that keeps tables small.

Contract: thin over :mod:`~airflow_provider_lakecommit.operations.maintenance`, in the order compact, expire, sweep, so
that each finds what the one before has left. Safe beside the runs that land. A retry does what is left.

Failure story: a failed table fails the task at the end, with its name; the others are done by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.landing import Landing, span_of
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pyarrow.fs import FileInfo

    from airflow_provider_lakecommit.cycle import LandingSession

__all__ = ["MaintainTableOperator"]

GIGABYTE = 10**9


class MaintainTableOperator(LandingTask):
    """Compact small files of the tables of a landing, expire old snapshots, and remove the files that nothing needs.

    A snapshot that a ledger needs is never expired. Returns what `lakecommit maintain --json` prints, without the
    single files.

    :param landing: the landing, or the path of its YAML spec
    :param compact: rewrite small files, and files with many deleted rows, as files of the table's target size
    :param compact_time: begin no compaction after this time; a timedelta, seconds, or a text as ``30m``
    :param compact_gb: rewrite at most so many GB in each table
    :param files_older_than: younger files stay, likewise. Not less than the landing's ``completion_timeout``. ``None``:
        remove no files
    :param snapshots_older_than: younger snapshots stay, likewise. ``None``: expire no snapshots
    :param keep_snapshots: number of the newest snapshots that always stay
    :param dry_run: change nothing, log what would be done
    :raises SpecError: no part is requested

    .. seealso:: :ref:`howto/operator:MaintainTableOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        compact: bool = True,
        compact_time: timedelta | str | float | None = None,
        compact_gb: float | None = None,
        files_older_than: timedelta | str | float | None = timedelta(days=3),
        snapshots_older_than: timedelta | str | float | None = timedelta(days=7),
        keep_snapshots: int = 1,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        if not compact and files_older_than is None and snapshots_older_than is None:
            raise SpecError(
                "LC8342",
                f"MaintainTableOperator {self.task_id!r}: set compact, files_older_than or snapshots_older_than",
            )
        self.compact, self.compact_gb = compact, compact_gb
        self.compact_time = None if compact_time is None else span_of(compact_time, "compact_time")
        self.files_older_than = None if files_older_than is None else span_of(files_older_than, "files_older_than")
        self.snapshots_older_than = (
            None if snapshots_older_than is None else span_of(snapshots_older_than, "snapshots_older_than")
        )
        self.keep_snapshots = keep_snapshots
        self.previews = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Compact, expire, then sweep."""
        result: dict[str, Any] = {"written": not self.previews}
        wrong: list[str] = []
        with no_retry_in_vain(self), self.session() as session:
            if self.compact:
                result["compact"] = self._compact(session, wrong)
            if self.snapshots_older_than is not None:
                result["expire"] = self._expire(session, self.snapshots_older_than, wrong)
            if self.files_older_than is not None:
                result["sweep"] = self._sweep(session, self.files_older_than, wrong)
            if wrong:
                raise TableError("LC8343", "; ".join(wrong))
        return result

    def _compact(self, session: LandingSession, wrong: list[str]) -> dict[str, Any]:
        from airflow_provider_lakecommit.operations import compact

        most = None if self.compact_gb is None else int(self.compact_gb * GIGABYTE)
        found = compact(session, write=not self.previews, most_bytes=most, most_time=self.compact_time)
        return self._ended(found, wrong)

    def _expire(self, session: LandingSession, older_than: timedelta, wrong: list[str]) -> dict[str, Any]:
        from airflow_provider_lakecommit.operations import expire

        found = expire(session, older_than=older_than, keep=self.keep_snapshots, remove=not self.previews)
        return self._ended(found, wrong)

    def _sweep(self, session: LandingSession, older_than: timedelta, wrong: list[str]) -> dict[str, Any]:
        from airflow_provider_lakecommit.operations import Why, least_age, sweep

        def found(table: str, file: FileInfo, why: Why) -> None:
            if self.previews:
                self.log.info("%s: %s %s bytes: %s", table, file.path, file.size, why)

        swept = sweep(
            session,
            older_than=least_age(self.landing, older_than),
            remove=not self.previews,
            report=found,
            progress=lambda t: self.log.info("%s: %s of %s files removed so far", t.table, t.removed, t.files),
        )
        return self._ended(swept, wrong)

    def _ended(self, found: Iterable[Any], wrong: list[str]) -> dict[str, Any]:
        """Log the numbers of each table once they are known, and return all of them."""
        tables = []
        for t in found:
            self.log.info("%s", t.to_dict())
            tables.append(t.to_dict())
            wrong += [f"{t.table}: {t.error}"] if t.error else []
        return {"tables": tables}
