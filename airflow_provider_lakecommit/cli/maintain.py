# SPDX-License-Identifier: Apache-2.0
"""`lakecommit maintain`: keep tables small and quick to read.

The parts run in the order compact, expire, sweep, so that each finds what the one before has left. Without ``--yes``
every part only shows what it would do. A table that fails is reported and sets the exit code; the others go on.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, preview_end
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import MAINTAIN, VERIFY, spoken
from airflow_provider_lakecommit.cycle import LandingSession, evolve_now
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.operations import (
    SNAPSHOT_AGE,
    CompactedTable,
    ExpiredSnapshots,
    Prunable,
    SweptTable,
    Why,
    compact,
    expire,
    least_age,
    prunable_sections,
    prune,
    sweep,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

MOST_IN_JSON = 1000
"""Files listed in JSON; text lists all."""
MEGABYTE = 1e6
GIGABYTE = 10**9
Part = tuple[dict[str, Any], list[str], list[str]]
"""A part's values for JSON, its lines of text, and its errors."""


def maintain(spec: LandingSpec, options: Namespace, output: Output) -> int:
    parts: dict[str, Callable[[LandingSession, Namespace, Output], Part]] = {
        "compact": _compact,
        "expire": _expire,
        "sweep": _sweep,
        "ledger": _ledger,
        "columns": _columns,
        "widen": _columns,
    }
    chosen = options.only or ["compact", "expire", "sweep"]
    evolve = "widen" if "widen" in chosen else "add" if "columns" in chosen else spec.landing.evolve
    landing = replace(spec.landing, evolve=evolve)
    with LandingSession.connect(landing, spec.kafka, spec.catalog, log=output.log) as session:
        done = {name: part(session, options, output) for name, part in parts.items() if name in chosen}
    values = {name: value for name, (value, _, _) in done.items()}
    output.answer(
        {"landing": spec.landing.name, **values, "written": options.yes},
        [line for _, lines, _ in done.values() for line in lines],
    )
    wrong = [text for _, _, some in done.values() for text in some]
    for text in wrong:
        output.log(f"WARNING: {text}")
    code = Exit.DONE if options.yes else preview_end(options, output)
    return Exit.REFUSED if wrong else code


def _compact(session: LandingSession, options: Namespace, output: Output) -> Part:
    found = list(
        compact(
            session,
            write=options.yes,
            most_bytes=options.limit and options.limit * GIGABYTE,
            most_time=options.time,
            progress=lambda t: output.log(
                f"{t.table}: {t.numbers.files_in} of {t.files} files are compacted into {t.numbers.files_out} so far"
            ),
        )
    )
    lines = [_compacted_text(t, options.yes) for t in found]
    return {"tables": [t.to_dict() for t in found]}, lines, _errors((t.table, t.error) for t in found)


def _expire(session: LandingSession, options: Namespace, output: Output) -> Part:
    age = options.older_than or SNAPSHOT_AGE
    found = list(expire(session, older_than=age, keep=options.keep, remove=options.yes))
    reach = [f"`{VERIFY}` checks the history only as far back as it is kept"] if any(f.old for f in found) else []
    lines = [*(_expired_text(f, options.yes) for f in found), *reach]
    return {"tables": [f.to_dict() for f in found]}, lines, _errors((f.table, f.error) for f in found)


def _sweep(session: LandingSession, options: Namespace, output: Output) -> Part:
    listed: list[dict[str, object]] = []
    lines: list[str] = []

    def found(table: str, file: FileInfo, why: Why) -> None:
        if not output.as_json:
            lines.extend([] if options.yes else [f"{file.path} {file.size} bytes: {why}"])
        elif len(listed) < MOST_IN_JSON:
            listed.append({"table": table, "path": file.path, "bytes": file.size, "why": why.value})

    swept = sweep(
        session,
        older_than=least_age(session.landing, options.older_than),
        remove=options.yes,
        report=found,
        progress=lambda t: output.log(f"{t.table}: {t.removed} of {t.files} files removed so far"),
    )
    lines += (line for t in swept for line in _swept_text(t, options.yes))
    return {"tables": [t.to_dict() for t in swept], "files": listed}, lines, _errors((t.table, t.error) for t in swept)


def _ledger(session: LandingSession, options: Namespace, output: Output) -> Part:
    found = prunable_sections(session)
    decision = decision_of(f"{spoken(MAINTAIN)} --only ledger", session.landing.name, options.reason)
    after = {f.table: prune(session, f, decision).share for f in found if f.removed} if options.yes else {}
    if not options.yes and any(f.removed for f in found):
        output.log("with --yes, pending slices are read again; dead letters of these topics can then not be replayed")
    return {"tables": [_prunable_to_dict(f, after.get(f.table)) for f in found]}, list(_prunable_text(found, after)), []


def _columns(session: LandingSession, options: Namespace, output: Output) -> Part:
    landing = session.landing
    decision = decision_of(f"{spoken(MAINTAIN)} --only columns", landing.name, options.reason) if options.yes else None
    found, changes = evolve_now(session, decision)
    made = {table: [str(change) for change in some] for table, some in changes.items() if some}
    done = [f"{table}: {change}" for table, some in made.items() for change in some]
    return {"changed": made, "found": list(found)}, [*done, *found] or ["no column is missing"], []


def _errors(found: Iterable[tuple[str, str]]) -> list[str]:
    return [text if text.startswith(table) else f"{table}: {text}" for table, text in found if text]


def _compacted_text(t: CompactedTable, written: bool) -> str:
    later = f"; {t.later} more bins are beyond the limits of this run" if t.later else ""
    if not written:
        return f"{t.table}: {t.files} files ({t.bytes / MEGABYTE:.1f} MB) can be compacted into {t.bins}{later}"
    n = t.numbers
    lost = f"; {t.given_up} bins met commits of others" if t.given_up else ""
    dead = f", {n.dead_rows} deleted rows left out" if n.dead_rows else ""
    sizes = f"{n.bytes_in / MEGABYTE:.1f} MB into {n.bytes_out / MEGABYTE:.1f} MB"
    return f"{t.table}: compacted {n.files_in} files into {n.files_out} ({sizes}){dead}{lost}{later}"


def _swept_text(t: SweptTable, removed: bool) -> Iterable[str]:
    did = f", {t.removed} removed, {t.removed_bytes / MEGABYTE:.1f} MB" if removed else ""
    yield f"{t.table}: {t.files} files are not needed, {t.bytes / MEGABYTE:.1f} MB{did}"
    for reason, (files, size) in sorted(t.found.items()):
        yield f"  {files} files, {size / MEGABYTE:.1f} MB: {reason}"
    for reason, (files, size) in sorted(t.kept.items()):
        yield f"  kept: {files} files, {size / MEGABYTE:.1f} MB: {reason}"


def _expired_text(f: ExpiredSnapshots, removed: bool) -> str:
    did = f"{f.expired} of {f.old} old snapshots expired" if removed else f"{f.old} snapshots can be expired"
    newest = "" if f.newest is None else f", the newest of {f.newest:%Y-%m-%d %H:%M} UTC"
    return f"{f.table}: {did}{newest}; {f.left} remain"


def _prunable_to_dict(found: Prunable, after: float | None) -> dict[str, object]:
    removed = [
        {"landing": landing, "lane": lane, "partitions": sorted(f"{p} of topic id {p.topic_id}" for p in parts)}
        for (landing, lane), parts in sorted(found.removed.items())
    ]
    return {"table": found.table, "share": found.state.share, "gone": removed, "share_after": after}


def _prunable_text(found: Iterable[Prunable], after: dict[str, float]) -> Iterable[str]:
    for f in found:
        now = f", {after[f.table]:.1%} now" if f.table in after else ""
        yield f"{f.table}: its ledger uses {f.state.share:.1%} of its limit{now}"
        for (landing, stream), parts in sorted(f.removed.items()):
            yield f"  landing {landing}, stream {stream}:"
            for p in sorted(parts):
                landed = f.landed((landing, stream), p)
                yield f"    {p} of topic id {p.topic_id}, which was deleted: {landed} landed offsets"
        if not f.removed:
            yield "  all its topics exist"
