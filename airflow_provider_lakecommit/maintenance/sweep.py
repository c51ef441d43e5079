# SPDX-License-Identifier: Apache-2.0
"""Removing the files that no slice needs any more: of slices that were redundant or void, of tasks that were killed, of
commit attempts that were lost.

Contract: a file is removed only if it is garbage (:mod:`~airflow_provider_lakecommit.maintenance.garbage`), and by then
nothing can need it again, whatever is under way:

* The metadata are read before the control log, so that what was published in between is seen as reported.
* Before a file goes that nobody reported, the control log says that its attempt is void. From there on no reader of the
  log takes a report of it, however late a zombie sends it. What was reported in front of that record stays.
* Before each batch goes the metadata are read again; what a snapshot holds by then stays.
* Files of commits, and of replays of dead letters, are older than a day; a manifest goes only if the head has moved
  past the parent of its commit.

So safety rests on the order of the log and on the compare-and-swap, on no clock; the age only keeps work from being
done in vain. It is by the storage's clock. A sweep writes nothing but these records and the file by which it asks the
storage for the time. Memory is bounded by what the metadata and the log hold, not by how many files there are.

Failure story: killed anywhere, or with a catalog, storage or broker that goes away, what was removed was garbage; the
next sweep finds the rest. Of two at once the later shuts the earlier one out of the control topic, or both remove the
same files. A table whose ledger is not in order is left alone and told; others go on.
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

from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError, SpecError
from airflow_provider_lakecommit.iceberg.listing import FileStore, StoredFile
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.maintenance.garbage import Kept, Why, commit_of, parent_of, reports_of
from airflow_provider_lakecommit.maintenance.held import HeldFiles
from airflow_provider_lakecommit.maintenance.ready import ReadyTable, check_log, ready_tables
from airflow_provider_lakecommit.places import REPLAY, attempt_of, data_roots, file_mark, mark_of, storage_place
from airflow_provider_lakecommit.session.landing_session import FoldedLog, LandingSession

__all__ = ["COMMIT_AGE", "Garbage", "SweptTable", "least_age", "sweep"]

DEFAULT_AGE = timedelta(days=3)
COMMIT_AGE = timedelta(days=1)
"""The least age of manifests: a commit that is under way writes them before anything tells of it."""
BATCH = 2_000
"""Files that are removed between two looks; their attempts fit into one control record."""
AT_ONCE = 8
PERSON = "person"
ROLE = "sweep"


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that nothing needs. ``attempt`` is that of a slice, ``None`` for a file of a commit."""

    file: StoredFile
    why: Why
    attempt: UUID | None = None


@dataclass(slots=True, kw_only=True)
class SweptTable:
    """What was found below one table, and removed. ``found`` and ``kept`` are numbers of files and bytes by reason."""

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
        def told(some: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
            return {reason: {"files": files, "bytes": size} for reason, (files, size) in sorted(some.items())}

        return {
            "table": self.table,
            "files": self.files,
            "bytes": self.bytes,
            "found": told(self.found),
            "kept": told(self.kept),
            "removed": self.removed,
            "removed_bytes": self.removed_bytes,
            **({"error": self.error} if self.error else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """Of what the transactional id is made."""

    deployment: str = PERSON
    slot: int = 0


def sweep(
    session: LandingSession,
    *,
    older_than: timedelta,
    remove: bool,
    told: Callable[[str, Garbage], None] = lambda _table, _garbage: None,
    progress: Callable[[SweptTable], None] = lambda _table: None,
) -> tuple[SweptTable, ...]:
    """Look for garbage below the tables of a landing, and remove it if asked to.

    :param older_than: younger files are left alone
    :param told: gets each file that is found, before it is removed
    :param progress: gets a table's numbers after each batch
    :raises LakecommitError: the control log cannot be read, or not be written
    """
    ready, errors = ready_tables(session)
    folded = session.read_state([t.ledger for t in ready]) if ready else None
    swept = [SweptTable(table=name, error=why) for name, why in errors.items()]
    for table in ready:
        out = SweptTable(table=table.name)
        swept.append(out)
        if folded is None:
            continue
        try:
            check_log(table, folded)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                one = _TableSweep(session, table, folded, older_than, remove, out, pool)
                one.run(partial(told, table.name), progress)
        except LakecommitError as e:
            out.error = str(e)
    return tuple(swept)


def least_age(landing: Landing, asked: timedelta | None) -> timedelta:
    """The age of files that a sweep may remove without taking work from tasks that run.

    :raises SpecError: less is asked for
    """
    least = landing.completion_timeout
    if asked is not None and asked < least:
        raise SpecError(
            f"an age of {asked} is less than the completion_timeout of landing {landing.name} ({least}): tasks may "
            "still be writing such files; ask for more"
        )
    return max(DEFAULT_AGE, 2 * least) if asked is None else asked


class _TableSweep:
    """One table while it is swept."""

    def __init__(
        self,
        session: LandingSession,
        table: ReadyTable,
        folded: FoldedLog,
        older_than: timedelta,
        remove: bool,
        out: SweptTable,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._session, self._table, self._folded, self._remove, self._out = session, table, folded, remove, out
        self._pool = pool
        self._ledger: TableLedger = table.ledger
        self._age, self._commit_age = older_than.total_seconds(), max(older_than, COMMIT_AGE).total_seconds()
        self._reports = reports_of(folded.entries, table.ledger)
        self._accepted = {a.report.attempt for a in folded.state.accepted.get(table.name, ())}
        self._held = HeldFiles(session.tables, table.name, table.table)
        self._mark = file_mark(table.ledger.uuid, session.landing.name, session.lane)
        self._replays = file_mark(table.ledger.uuid, session.landing.name, REPLAY)
        self._now = 0.0

    def run(self, told: Callable[[Garbage], None], progress: Callable[[SweptTable], None]) -> None:
        properties = self._session.tables.storage(self._table.name).properties
        for folder in _folders(self._table):
            store = FileStore(folder, properties)
            self._now = self._clock(store)
            batch: list[Garbage] = []
            for garbage in self._garbage(store):
                told(garbage)
                _count(self._out.found, garbage.why, garbage.file)
                batch.append(garbage)
                if self._remove and len(batch) >= BATCH:
                    self._remove_batch(store, batch)
                    batch = []
                    progress(self._out)
            if self._remove and batch:
                self._remove_batch(store, batch)
                progress(self._out)

    def _clock(self, store: FileStore) -> float:
        """A look writes nothing, so that it has to do with our own clock."""
        if not self._remove:
            return self._session.now().timestamp()
        return store.now(f"{attempt_id(self._ledger.uuid, self._session.new_id())}-m0.avro")

    def _garbage(self, store: FileStore) -> Iterator[Garbage]:
        commits: dict[UUID, list[tuple[StoredFile, bool]]] = {}
        for file in store.walk():
            if (attempt := attempt_of(file.name)) is not None:
                found = self._data_file(file, attempt)
                if isinstance(found, Why):
                    yield Garbage(file, found, attempt)
                else:
                    _count(self._out.kept, found, file)
            elif (commit := commit_of(file.name, self._ledger.uuid)) is None:
                _count(self._out.kept, Kept.FOREIGN, file)
            elif file.name in self._held:
                _count(self._out.kept, Kept.HELD, file)
            else:
                commits.setdefault(commit[0], []).append((file, commit[1]))
        for some in commits.values():
            yield from self._lost_commit(store, some)

    def _data_file(self, file: StoredFile, attempt: UUID) -> Why | Kept:
        if (mark := mark_of(file.name)) not in (self._mark, self._replays):
            return Kept.OTHERS
        if file.name in self._held:
            return Kept.HELD
        if mark == self._replays:
            # Of these no log tells: like manifests, they are written before anything tells of them.
            return Why.LOST_COMMIT if self._now - file.modified >= self._commit_age else Kept.YOUNG
        if self._now - file.modified < self._age:
            return Kept.YOUNG
        if attempt in self._accepted:
            return Kept.WAITS
        return (self._reports[attempt] or Kept.WAITS) if attempt in self._reports else Why.UNREPORTED

    def _lost_commit(self, store: FileStore, some: Sequence[tuple[StoredFile, bool]]) -> Iterator[Garbage]:
        """Files of one commit attempt; which of them a snapshot holds is held for good, so that these are the rest."""
        reason: Kept | None = None
        if any(self._now - file.modified < self._commit_age for file, _ in some):
            reason = Kept.YOUNG
        elif any(listed and _parent(store, file) in self._held.heads for file, listed in some):
            reason = Kept.IN_FLIGHT
        for file, _ in some:
            if reason is None:
                yield Garbage(file, Why.LOST_COMMIT)
            else:
                _count(self._out.kept, reason, file)

    def _remove_batch(self, store: FileStore, batch: Sequence[Garbage]) -> None:
        late = self._voided({g.attempt for g in batch if g.why is Why.UNREPORTED and g.attempt is not None})
        self._held.refresh()
        gone = [g.file for g in batch if g.file.name not in self._held and g.attempt not in late]
        for file, there in zip(gone, self._pool.map(lambda f: store.delete(f.path), gone), strict=True):
            self._out.removed += there
            self._out.removed_bytes += file.size if there else 0

    def _voided(self, attempts: set[UUID]) -> set[UUID]:
        """Tell the log that these attempts are void; those that were reported in front of it, and so are not.

        :raises LakecommitError: it cannot be told
        """
        if not attempts:
            return set()
        session = self._session
        sender = session.sender(ROLE, session.new_id())
        record = sender.voided(session.new_id(), session.now(), sorted(attempts))
        sent = session.send(ROLE, _Slot(), self._folded.partition, [record])
        self._folded = session.read_state(self._folded.ledgers, since=self._folded, until=sent)
        self._reports = reports_of(self._folded.entries, self._ledger, before=sent)
        if not any(e.offset == sent for e in self._folded.entries):
            raise LedgerError(
                f"what was told the control topic at offset {sent} of partition {self._folded.partition} cannot be "
                "read back: nothing more is removed. Look at the topic with `lakecommit status`, and run it again"
            )
        return attempts & self._reports.keys()


def _parent(store: FileStore, file: StoredFile) -> int | None:
    """Of a manifest list. One that cannot be read was never finished, so that nobody could ask for it to be taken; it
    is as one that builds on a snapshot which nothing has.
    """
    import fastavro

    try:
        facts = fastavro.reader(streams.BytesIO(store.read(file.path))).metadata
    except (OSError, ValueError, EOFError):
        return -1
    return parent_of({key: str(value) for key, value in facts.items()})


def _folders(table: ReadyTable) -> Iterable[str]:
    """Where the table has files, without those below one another."""
    metadata = table.table.metadata
    own = metadata.properties.get("write.metadata.path", "")
    found = [f for f in dict.fromkeys((*data_roots(metadata.location, metadata.properties), own)) if f]
    places = {f: "{}:{}/".format(*storage_place(f.rstrip("/"))) for f in found}
    seen: list[str] = []
    for folder in sorted(found, key=lambda f: len(places[f])):
        if not any(places[folder].startswith(places[other]) for other in seen):
            seen.append(folder)
    return seen


def _count(where: dict[str, tuple[int, int]], reason: Why | Kept, file: StoredFile) -> None:
    files, size = where.get(reason.value, (0, 0))
    where[reason.value] = (files + 1, size + file.size)
