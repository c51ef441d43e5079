# SPDX-License-Identifier: Apache-2.0
"""Remove the files that no slice needs any more: of redundant or void slices, of killed tasks, of lost commit attempts.

Contract: the files of all streams of the landing are read, of open and of closed ones
(:mod:`~airflow_provider_lakecommit.operations.maintenance.lane_files`). A file is removed only if it is garbage
(:mod:`~airflow_provider_lakecommit.operations.maintenance.garbage`), and if nothing can need it again, whatever is
running:

* The metadata are read before the control log, so that publications in between count as reported.
* Before an unreported file is removed, the control log gets a record that its attempt is void. Then no reader of the
  log accepts a report of it, however late a zombie sends it. What was reported before that record stays.
* Before each batch the metadata are read again; what a snapshot has by then stays, and so do files of a stream that was
  opened again meanwhile.
* An unfinished upload is aborted by its age alone: its object never existed, and a task that still finishes it fails.
* Files of commits, of replays of dead letters and of rewrites are older than a day; a manifest is removed only if the
  head has moved past the parent of its commit. So one of a first commit to a branch stays.

So safety depends on the order of the log and on the compare-and-swap, on no clock; the age, by the storage's clock,
only avoids wasted work. A sweep writes nothing but these records and the file that shows the storage's time. Memory is
bounded by the metadata and the log, not by the number of files.

Failure story: after a kill anywhere, or if a catalog, storage or broker fails, the removed files were garbage; the next
sweep finds the rest. Of two concurrent sweeps, the later one fences the earlier one out of the control topic, or both
remove the same files. A table whose ledger is not in order is skipped and reported; others continue.
"""

from __future__ import annotations

import io as streams
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from pyarrow.fs import FileInfo

from airflow_provider_lakecommit.core import (
    REPLAY,
    REWRITE,
    attempt_id,
    attempt_of,
    data_roots,
    mark_of,
    storage_location,
)
from airflow_provider_lakecommit.cycle import LandingSession, PreparedTable
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operations.maintenance.garbage import Kept, Why, commit_of
from airflow_provider_lakecommit.operations.maintenance.lane_files import TableLanes, lanes_by_table
from airflow_provider_lakecommit.operations.maintenance.listing import FileStore, UnfinishedUploads
from airflow_provider_lakecommit.operations.maintenance.referenced import ReferencedFiles

DEFAULT_AGE = timedelta(days=3)
COMMIT_AGE = timedelta(days=1)
"""The least age of manifests: a running commit writes them before anything reports it."""
BATCH = 2_000
"""Files to remove between two reads of the log; their attempts fit into one control record."""
AT_ONCE = 8


Garbage = tuple[FileInfo, Why]


@dataclass(slots=True, kw_only=True)
class SweptTable:
    """The files found below one table, and removed. ``found`` and ``kept`` are numbers of files and bytes by reason."""

    table: str
    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    removed: int = 0
    removed_bytes: int = 0
    error: str = ""

    @property
    def files(self) -> int:
        return sum(files for files, _ in self.found.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.found.values())

    def to_dict(self) -> dict[str, Any]:
        def counted(some: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
            return {reason: {"files": files, "bytes": size} for reason, (files, size) in sorted(some.items())}

        return {
            "table": self.table,
            "files": self.files,
            "bytes": self.bytes,
            "found": counted(self.found),
            "kept": counted(self.kept),
            "removed": self.removed,
            "removed_bytes": self.removed_bytes,
            **({"error": self.error} if self.error else {}),
        }


def sweep(
    session: LandingSession,
    *,
    older_than: timedelta,
    remove: bool,
    report: Callable[[str, FileInfo, Why], None] = lambda _table, _file, _why: None,
    progress: Callable[[SweptTable], None] = lambda _table: None,
) -> tuple[SweptTable, ...]:
    """Find garbage below the tables of a landing, and remove it on request.

    :param older_than: younger files are left alone
    :param report: takes each found file, before it is removed
    :param progress: takes a table's numbers after each batch
    :raises LakecommitError: the control log cannot be read or written
    """
    swept = tuple(SweptTable(table=name) for name in session.landing.tables)
    with lanes_by_table(session) as lanes_of:
        for out in swept:
            try:
                lanes = lanes_of(out.table)
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    one = _TableSweep(session, lanes, older_than, remove, out, pool)
                    one.run(partial(report, out.table), progress)
            except LakecommitError as e:
                out.error = str(e)
    return swept


def least_age(landing: Landing, age: timedelta | None) -> timedelta:
    """Return the age of files that a sweep may remove without affecting running tasks.

    :raises SpecError: less is requested
    """
    least = landing.window.completion_timeout
    if age is not None and age < least:
        raise SpecError(
            "LC7712",
            f"an age of {age} is less than window.completion_timeout of landing {landing.name} ({least}): running "
            "tasks may still be writing such files, so use a higher age",
        )
    return max(DEFAULT_AGE, 2 * least) if age is None else age


class _TableSweep:
    """The sweep of one table."""

    def __init__(
        self,
        session: LandingSession,
        lanes: TableLanes,
        older_than: timedelta,
        remove: bool,
        out: SweptTable,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._session, self._lanes, self._remove, self._out, self._pool = session, lanes, remove, out, pool
        self._table = table = lanes.table
        self._age, self._commit_age = older_than.total_seconds(), max(older_than, COMMIT_AGE).total_seconds()
        self._used = ReferencedFiles(session.tables, table.name, table.table)
        self._unannounced = {lanes.mark(REPLAY), lanes.mark(REWRITE)}
        self._now = 0.0

    def run(self, report: Callable[[FileInfo, Why], None], progress: Callable[[SweptTable], None]) -> None:
        properties = self._session.tables.storage(self._table.name).properties
        for folder in _folders(self._table):
            store = FileStore(folder, properties)
            # A dry run writes nothing, so it uses our own clock.
            clock = f"{attempt_id(self._table.ledger.uuid, self._session.new_id())}-m0.avro"
            self._now = store.now(clock) if self._remove else self._session.now().timestamp()
            batch: list[Garbage] = []
            for file, why in self._garbage(store):
                report(file, why)
                _count(self._out.found, why, file)
                batch.append((file, why))
                if self._remove and len(batch) >= BATCH:
                    self._remove_batch(store, batch)
                    batch = []
                    progress(self._out)
            if self._remove and batch:
                self._remove_batch(store, batch)
                progress(self._out)
            self._sweep_uploads(UnfinishedUploads(folder, properties), report)

    def _sweep_uploads(self, uploads: UnfinishedUploads, report: Callable[[FileInfo, Why], None]) -> None:
        if uploads.unknown:
            self._session.log(
                f"{self._out.table}: unfinished uploads are not checked: install boto3 (extra s3), or remove them by a "
                "lifecycle rule of the bucket"
            )
        for file in uploads.walk():
            mark = mark_of(file.base_name)
            if attempt_of(file.base_name) is None or mark is None or not self._is_own(mark):
                _count(self._out.kept, Kept.OTHERS, file)
            elif self._age_of(file) < max(self._age, self._commit_age):
                _count(self._out.kept, Kept.YOUNG, file)
            else:
                report(file, Why.UPLOAD)
                _count(self._out.found, Why.UPLOAD, file)
                if self._remove and uploads.abort(file.path):
                    self._out.removed += 1
                    self._out.removed_bytes += file.size

    def _garbage(self, store: FileStore) -> Iterator[Garbage]:
        commits: dict[UUID, list[tuple[FileInfo, bool]]] = {}
        for file in store.walk():
            if (attempt := attempt_of(file.base_name)) is not None:
                found = self._data_file(file, attempt)
                if isinstance(found, Why):
                    yield file, found
                else:
                    _count(self._out.kept, found, file)
            elif (commit := commit_of(file.base_name, self._table.ledger.uuid)) is None:
                _count(self._out.kept, Kept.FOREIGN, file)
            elif file.base_name in self._used:
                _count(self._out.kept, Kept.HELD, file)
            else:
                commits.setdefault(commit[0], []).append((file, commit[1]))
        for some in commits.values():
            yield from self._lost_commit(store, some)

    def _data_file(self, file: FileInfo, attempt: UUID) -> Why | Kept:
        mark = mark_of(file.base_name)
        if mark is None:
            return Kept.HELD if file.base_name in self._used else Kept.UNMARKED
        if not self._is_own(mark):
            return Kept.OTHERS
        if file.base_name in self._used:
            return Kept.HELD
        if mark in self._unannounced:
            # No log has these: like manifests, they are written before anything reports them.
            return Why.LOST_COMMIT if self._age_of(file) >= self._commit_age else Kept.YOUNG
        if self._age_of(file) < self._age:
            return Kept.YOUNG
        return self._lanes.disposition_of(mark, attempt)

    def _age_of(self, file: FileInfo) -> float:
        """Return the seconds since the file was written, by the storage's clock."""
        return self._now - float(file.mtime_ns) / 1e9

    def _is_own(self, mark: str) -> bool:
        return mark in self._unannounced or self._lanes.is_own(mark)

    def _lost_commit(self, store: FileStore, some: Sequence[tuple[FileInfo, bool]]) -> Iterator[Garbage]:
        """Yield the files of one commit attempt that no snapshot has; those that one has are kept for good."""
        reason: Kept | None = None
        if any(self._age_of(file) < self._commit_age for file, _ in some):
            reason = Kept.YOUNG
        elif any(listed and _parent(store, file) in self._used.heads for file, listed in some):
            reason = Kept.IN_FLIGHT
        for file, _ in some:
            if reason is None:
                yield file, Why.LOST_COMMIT
            else:
                _count(self._out.kept, reason, file)

    def _remove_batch(self, store: FileStore, batch: Sequence[Garbage]) -> None:
        unreported: dict[str, set[UUID]] = {}
        for file, why in batch:
            attempt, mark = attempt_of(file.base_name), mark_of(file.base_name)
            if why is Why.UNREPORTED and mark is not None and attempt is not None:
                unreported.setdefault(mark, set()).add(attempt)
        late = self._lanes.record_void(unreported)
        self._used.refresh()
        again = self._lanes.marks_in(self._used.metadata) if any(why is Why.CLOSED for _, why in batch) else ()
        removable = [
            file
            for file, why in batch
            if file.base_name not in self._used
            and attempt_of(file.base_name) not in late
            and not (why is Why.CLOSED and mark_of(file.base_name) in again)
        ]
        for file, there in zip(removable, self._pool.map(lambda f: store.delete(f.path), removable), strict=True):
            self._out.removed += there
            self._out.removed_bytes += file.size if there else 0


def _parent(store: FileStore, file: FileInfo) -> int | None:
    """Return the parent in a manifest list. An unreadable list was never finished, so its commit was never requested;
    it counts as one on an unknown snapshot.
    """
    import fastavro

    try:
        facts = fastavro.reader(streams.BytesIO(store.read(file.path))).metadata
    except (OSError, ValueError, EOFError):
        return -1
    text = str(facts.get("parent-snapshot-id", ""))
    return int(text) if text.isdecimal() else None


def _folders(table: PreparedTable) -> Iterable[str]:
    """Return the folders with files of the table, without nested ones."""
    metadata = table.table.metadata
    own = metadata.properties.get("write.metadata.path", "")
    found = [f for f in dict.fromkeys((*data_roots(metadata.location, metadata.properties), own)) if f]
    locations = {f: "{}:{}/".format(*storage_location(f.rstrip("/"))) for f in found}
    outermost: list[str] = []
    for folder in sorted(found, key=lambda f: len(locations[f])):
        if not any(locations[folder].startswith(locations[other]) for other in outermost):
            outermost.append(folder)
    return outermost


def _count(where: dict[str, tuple[int, int]], reason: Why | Kept, file: FileInfo) -> None:
    files, size = where.get(reason.value, (0, 0))
    where[reason.value] = (files + 1, size + file.size)
