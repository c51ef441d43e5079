# SPDX-License-Identifier: Apache-2.0
"""Checks the catalog and the tables: reachable, present or creatable, compatible with the rows, with a usable ledger;
and their storage, written, read and deleted from here.

The storage is tried with one small file next to the data files, in no snapshot, which is removed again, and commits
with requests that can never be applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, UnauthorizedError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from airflow_provider_lakecommit.core import HISTORY, MAINTAIN, RESET_ASSERT, RESET_OFFSETS, UNBLOCK
from airflow_provider_lakecommit.cycle import (
    LEAST_SECONDS,
    LandingSession,
    check_first_run,
    check_fit,
    table_of,
    target_of,
)
from airflow_provider_lakecommit.exceptions import CatalogError, ControlTopicError, LedgerError, SpecError, TableError
from airflow_provider_lakecommit.iceberg import (
    Condition,
    GuardedFileIO,
    SnapshotKind,
    TableStorage,
    clock,
    data_folder,
    debt_of,
    ensure_branch,
    landing_snapshots,
    read_ledger,
    require_ledger,
    tag_name,
)
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, checked, fail, ok, warn
from airflow_provider_lakecommit.status.status import read_status

SHORT_SECONDS = 900.0
"""Credentials with a shorter lifetime are likely to expire while a window is written."""
NOBODY = UUID(int=0)
NEVER = -2
"""Not the id of any snapshot."""
_LONGER = "configure the catalog to vend credentials that last as long as writing a window"


def tables(session: LandingSession, *, reachable: bool = True) -> tuple[list[CheckResult], list[Table]]:
    """Return all findings, and the existing tables.

    :param reachable: whether the brokers answer; if not, the control topic is not searched for records of tables
    """
    found: list[Table] = []
    try:
        session.tables.catalog.list_namespaces()
    except (CatalogError, SpecError) as e:
        return [fail("catalog", str(e), "follow the message; no table was checked")], found
    except ForbiddenError:
        observed = f"{session.tables.name}; these credentials cannot list its namespaces, which no landing needs"
    except Exception as e:
        return [fail("catalog", str(session.tables.unavailable("listing namespaces", e)), "follow the message")], found
    else:
        observed = session.tables.name
    out = [ok("catalog", observed), *_lock(session.tables.catalog)]
    for name in session.landing.tables:
        out += checked(f"table {name}", partial(_table, session, name, found, reachable))
    for table in found:
        name, path = name_of(table), probe_path(table)
        out += checked(f"commits to {name}", partial(_commits, session, table))
        check = f"storage of {name}"
        out += checked(check, partial(_tried, check, table.io, path, "the table's location"))
    if len(found) < len(session.landing.tables):
        out += checked("warehouse", partial(_warehouse, session))
    return out, found


def _commits(session: LandingSession, table: Table) -> Iterable[CheckResult]:
    """Check what the catalog verifies in a commit request, and whether these credentials may commit at all.

    *Exactly once* depends on it: a catalog that applies a request with false requirements lets a late request overwrite
    other commits. pyiceberg's own catalogs compare in this process. For each kind of requirement of a landing, a
    request without changes and with a false requirement is sent; the catalog must refuse it. A catalog checks the right
    to commit first.
    """
    check = f"commits to {name_of(table)}"
    for what, requirement in _untrue(table.metadata, session.landing.branch):
        try:
            session.tables.commit(table, (requirement,), ())
        except CommitFailedException:
            continue
        except (ForbiddenError, UnauthorizedError) as e:
            yield fail(check, session.tables.describe(e), "give these credentials the right to commit to the table")
        except Exception as e:
            yield warn(
                check,
                f"cannot check whether {what} is compared: {session.tables.describe(e)}",
                "try again; if it persists, check in the catalog's log why it does not answer with a conflict (409)",
            )
        else:
            yield fail(
                check,
                f"the catalog accepted a request that was made for another {what}",
                "do not land through this catalog: it would let a late commit overwrite other commits",
            )
        return
    yield ok(check, "allowed; a request that was made for another table, head, tag, schema or spec is refused")


def _untrue(metadata: TableMetadata, branch: str) -> Iterator[tuple[str, TableRequirement]]:
    yield "table", AssertTableUUID(uuid=NOBODY)
    for what, ref in (("head", branch), ("tag", tag_name(branch))):
        yield what, AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": NEVER})
    yield "schema", AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id + 1000})
    yield "spec", AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id + 1000})


def _lock(catalog: Catalog) -> Iterable[CheckResult]:
    if type(catalog).__module__ == "pyiceberg.catalog.hive":
        yield warn(
            "catalog lock",
            "a Hive Metastore's lock expires: a committer that is paused longer than metastore.txn.timeout and then "
            "continues overwrites other commits",
            "ensure that no committer can be paused that long, or use another catalog (docs: Catalogs)",
        )


def _table(session: LandingSession, name: str, found: list[Table], reachable: bool) -> Iterable[CheckResult]:
    def not_missing(name: str, table: Table | None = None) -> None:
        """Raise if the control topic has records of a table that is missing, or has no ledger."""
        with suppress(ControlTopicError):
            if reachable:
                check_first_run(session, name, table)

    check = f"table {name}"
    there = session.tables.find(name)
    # Also reports what `create` lacks, and which columns this landing cannot fill.
    table = table_of(session, name, dry=True, before_making=not_missing)
    if session.landing.checks:
        yield from _row_checks(session, name, table)
        table = ensure_branch(session.tables, name, table, session.landing.branch, dry=True)
    if there is None:
        where = session.tables.elsewhere(name)
        observed = "does not exist; the first run creates it as declared"
        yield warn(check, observed, where) if where else ok(check, observed)
        return
    found.append(there)
    yield ok(check, f"format version {table.format_version}, {len(table.schema().fields)} columns, {table.location()}")
    state = read_ledger(table.metadata, session.landing.branch)
    check_fit(session.landing, target_of(name, table, session.new_id()))
    partitioning = ", ".join(f"{f.name} ({f.transform})" for f in table.spec().fields) or "nothing"
    yield ok(f"layout of {name}", f"branch {session.landing.branch}, partitioned by {partitioning}")
    yield from _ledger(session, name, table, not_missing)
    if state.foreign_since:
        yield ok(f"ledger of {name}", f"{state.foreign_since} snapshots of others since")


def _row_checks(session: LandingSession, name: str, table: Table) -> Iterable[CheckResult]:
    """Try the checks of ``publish.checks`` on no rows."""
    from airflow_provider_lakecommit.cycle import RowsToCheck, try_check

    with RowsToCheck(name, table, None, None) as rows:
        for each in (c for c in session.landing.checks if c.table == name):
            try:
                try_check(each, rows)
            except TableError as e:
                yield fail(f"check {each.name}", str(e), "correct `publish.checks`")
            else:
                yield ok(f"check {each.name}", "can be run on the rows of the table")


def _ledger(
    session: LandingSession, name: str, table: Table, not_missing: Callable[[str, Table], None]
) -> Iterable[CheckResult]:
    check, state = f"ledger of {name}", read_ledger(table.metadata, session.landing.branch)
    try:
        require_ledger(state, name)
    except LedgerError as e:
        yield fail(check, f"{state.condition}: {state.reason}", str(e).partition(": ")[2] or "follow the message")
        return
    own = state.section(session.landing.name, session.lane)
    if state.condition is Condition.ROLLED_BACK:
        yield warn(
            check,
            f"{state.condition}: {state.reason}",
            f"nothing: the next run voids pending slices and reads the rest again; to prevent it: `{RESET_OFFSETS}` "
            f"or `{RESET_ASSERT}` before that",
        )
    elif own is None:
        not_missing(name, table)
        yield ok(check, "this landing has no rows in the table yet")
    else:
        yield ok(check, f"present in snapshot {state.snapshot_id}, {len(own.covered)} offsets landed")
    if state.crowding:
        yield warn(
            f"room of the ledger of {name}", state.crowding, f"`{MAINTAIN} SPEC --only ledger` lists unneeded entries"
        )
    debt = debt_of(table.metadata, session.landing.branch, session.landing.maintain)
    if debt is not None and debt.share >= 1:
        yield warn(f"files of {name}", str(debt), debt.remedy)
    if state.condition is Condition.ROLLED_BACK and state.tag_id is None and _renewed_last(session, table):
        yield fail(
            check,
            f"tag {tag_name(session.landing.branch)} is missing, although the newest commit of a landing has set it",
            "if no user has removed it, this catalog keeps no tags: use one that does (docs: Catalogs)",
        )
    tag = table.metadata.refs.get(tag_name(session.landing.branch))
    if tag is not None and tag.max_ref_age_ms is None:
        yield warn(
            check,
            f"tag {tag_name(session.landing.branch)} has no age of its own: it expires by the table's property",
            "land once: each commit sets it again",
        )


def _renewed_last(session: LandingSession, table: Table) -> bool:
    """Return True if the newest landing snapshot was made because the tag was missing. It has set the tag again."""
    newest = next(landing_snapshots(table.metadata, session.landing.branch), None)
    return newest is not None and newest.kind in (SnapshotKind.EPOCH, SnapshotKind.ORIGIN)


def name_of(table: Table) -> str:
    return ".".join(table.name())


def probe_path(table: Table) -> str:
    return f"{data_folder(table)}/.lakecommit-probe-{uuid4()}"


def _warehouse(session: LandingSession) -> Iterable[CheckResult]:
    if not (folder := session.tables.check_warehouse()):
        return [ok("warehouse", "not tried: the catalog chooses the places of new tables")]
    path = f"{folder.rstrip('/')}/.lakecommit-probe-{uuid4()}"
    return _tried("warehouse", GuardedFileIO(session.tables.io_properties()), path, folder)


def _tried(check: str, io: FileIO, path: str, below: str) -> Iterable[CheckResult]:
    """Run the steps of :func:`~airflow_provider_lakecommit.spark.probe.try_storage` from here."""
    from airflow_provider_lakecommit.spark import try_storage

    if trouble := try_storage(io, path):
        yield fail(check, trouble, f"let this host write, read and delete below {below}")
    else:
        yield ok(check, "a file was written, read and deleted from here")


def headroom(session: LandingSession, every: timedelta | None) -> Iterable[CheckResult]:
    """Return how long the unread offsets are kept, and what needs a decision."""
    check, status = "headroom", read_status(session, every)
    yield from (warn(check, text, "land now; then land more often, or raise retention.ms") for text in status.warnings)
    if not status.warnings:
        observed = f"{status.shortest.partition}: {status.shortest}" if status.shortest else "everything is landed"
        yield ok(check, observed)
    yield from (warn("blocked", text, f"`{UNBLOCK}` (or --raise N, --skip)") for text in status.blocked)
    if status.quarantined_count:
        yield warn(
            "control records",
            f"{status.quarantined_count} are ignored, the newest is {status.quarantined[-1]}",
            f"`{HISTORY} --control-topic` shows its content; check the writers of the control topic",
        )
    remedy = f"`{RESET_OFFSETS} SPEC --from earliest`"
    lost = (p for p in status.partitions if p.removed)
    yield from (fail(check, f"{p.partition}: {p.removed} unread offsets were removed", remedy) for p in lost)


def vended(storage: TableStorage, name: str, now: float) -> Iterable[CheckResult]:
    """Return the findings on the vended properties of a table, by name, without values; ``now`` in seconds of the
    epoch.
    """
    check = f"credentials of {name}"
    if storage.signed:
        yield warn(
            check,
            "the catalog vends no keys and wants to sign each request, which Spark's tasks cannot do",
            "configure it to vend credentials (X-Iceberg-Access-Delegation: vended-credentials); otherwise tasks use "
            "the connection's, or the identity of their machine",
        )
    if not storage.handed_out:
        return
    observed = f"vended by the catalog: {', '.join(storage.handed_out)}"
    left = storage.left(now)
    if left is None or storage.expires_at is None:
        yield ok(check, f"{observed}; the catalog does not report when they expire")
        return
    observed = f"{observed}; they expire in {left:.0f} s, at {clock(storage.expires_at)}"
    if left < LEAST_SECONDS:
        yield fail(check, observed, f"{_LONGER}, and check that its clock and the one here agree")
    elif left < SHORT_SECONDS:
        yield warn(check, observed, _LONGER)
    else:
        yield ok(check, observed)
