# SPDX-License-Identifier: Apache-2.0
"""`lakecommit maintain sweep`: remove what nothing needs any more: files, old snapshots or ledger entries.

Contract: removes only with ``--yes``; see :mod:`~airflow_provider_lakecommit.operations.maintenance.sweep`,
:mod:`~airflow_provider_lakecommit.operations.maintenance.expire` and
:mod:`~airflow_provider_lakecommit.operations.reset.prune`.

Failure story: a table that cannot be swept or expired is reported, and the exit code is 1; the others continue.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from datetime import timedelta

from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, preview_end
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import MAINTAIN_SWEEP, VERIFY, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.operations import (
    ExpiredSnapshots,
    Garbage,
    Prunable,
    SweptTable,
    expire,
    least_age,
    look,
    prune,
    sweep,
)

__all__ = ["clean"]

MOST_IN_JSON = 1000
"""Files in a JSON result; text lists all."""
MEGABYTE = 1e6
SNAPSHOT_AGE = timedelta(days=7)
"""Default minimum age of snapshots to expire."""


def clean(session: LandingSession, options: Namespace, output: Output) -> int:
    """Show unneeded items, or remove them.

    :raises LakecommitError: a required part is unreachable, or a ledger must be fixed first
    """
    if options.ledger:
        return _ledger(session, options, output)
    return (_snapshots if options.snapshots else _files)(session, options, output)


def _files(session: LandingSession, options: Namespace, output: Output) -> int:
    listed: list[dict[str, object]] = []

    def told(table: str, garbage: Garbage) -> None:
        f = garbage.file
        if not output.as_json:
            output.lines([] if options.yes else [f"{f.path} {f.size} bytes: {garbage.why}"])
        elif len(listed) < MOST_IN_JSON:
            listed.append({"table": table, "path": f.path, "bytes": f.size, "why": garbage.why.value})

    swept = sweep(
        session,
        older_than=least_age(session.landing, options.older_than),
        remove=options.yes,
        told=told,
        progress=lambda t: output.log(f"{t.table}: removed {t.removed} of {t.files} files so far"),
    )
    values = {"tables": [t.to_dict() for t in swept], "files": listed, "removed": options.yes}
    output.answer(values, (line for t in swept for line in _swept_text(t, options.yes)))
    return _end(options, output, ((t.table, t.error) for t in swept))


def _snapshots(session: LandingSession, options: Namespace, output: Output) -> int:
    age = options.older_than or SNAPSHOT_AGE
    found = list(expire(session, older_than=age, keep=options.keep, remove=options.yes))
    values = {"tables": [f.to_dict() for f in found], "written": options.yes}
    reach = [f"`{VERIFY}` recomputes the history only as far back as it is kept"] if any(f.old for f in found) else []
    output.answer(values, [*(_expired_text(f, options.yes) for f in found), *reach])
    return _end(options, output, ((f.table, f.error) for f in found))


def _ledger(session: LandingSession, options: Namespace, output: Output) -> int:
    found = look(session)
    decision = decision_of(f"{spoken(MAINTAIN_SWEEP)} --ledger", session.landing.name, options.reason)
    after = {f.table: prune(session, f, decision).share for f in found if f.gone} if options.yes else {}
    values = {"tables": [_prunable_to_dict(f, after.get(f.table)) for f in found], "written": options.yes}
    output.answer(values, _prunable_text(found, after))
    if not options.yes and any(f.gone for f in found):
        output.log("with --yes, pending slices are read again")
    return _end(options, output, ())


def _swept_text(t: SweptTable, removed: bool) -> Iterable[str]:
    did = f", {t.removed} removed, {t.removed_bytes / MEGABYTE:.1f} MB" if removed else ""
    yield f"{t.table}: {t.files} files are not needed, {t.bytes / MEGABYTE:.1f} MB{did}"
    for reason, (files, size) in sorted(t.found.items()):
        yield f"  {files} files, {size / MEGABYTE:.1f} MB: {reason}"
    for reason, (files, size) in sorted(t.kept.items()):
        yield f"  kept: {files} files, {size / MEGABYTE:.1f} MB: {reason}"


def _expired_text(f: ExpiredSnapshots, removed: bool) -> str:
    did = f"{f.expired} of {f.old} old snapshots were expired" if removed else f"{f.old} snapshots may be expired"
    newest = "" if f.newest is None else f", the newest of {f.newest:%Y-%m-%d %H:%M} UTC"
    return f"{f.table}: {did}{newest}; {f.left} {'are left' if removed else 'there are'}"


def _prunable_to_dict(found: Prunable, after: float | None) -> dict[str, object]:
    gone = [
        {"landing": landing, "lane": lane, "partitions": sorted(f"{p} of topic id {p.topic_id}" for p in parts)}
        for (landing, lane), parts in sorted(found.gone.items())
    ]
    return {"table": found.table, "share": found.state.share, "gone": gone, "share_after": after}


def _prunable_text(found: Iterable[Prunable], after: dict[str, float]) -> Iterable[str]:
    for f in found:
        now = f", {after[f.table]:.1%} now" if f.table in after else ""
        yield f"{f.table}: its ledger takes {f.state.share:.1%} of its room{now}"
        for (landing, lane), parts in sorted(f.gone.items()):
            yield f"  landing {landing}, stream {lane}:"
            for p in sorted(parts):
                landed = f.landed((landing, lane), p)
                yield f"    {p} of topic id {p.topic_id}, which was deleted: {landed} landed offsets"
        if not f.gone:
            yield "  all of its topics exist"


def _end(options: Namespace, output: Output, errors: Iterable[tuple[str, str]]) -> int:
    wrong = [text if text.startswith(table) else f"{table}: {text}" for table, text in errors if text]
    for text in wrong:
        output.log(f"WARNING: {text}")
    code = Exit.DONE if options.yes else preview_end(options, output)
    return Exit.REFUSED if wrong else code
