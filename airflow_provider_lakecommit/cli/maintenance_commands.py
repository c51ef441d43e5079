# SPDX-License-Identifier: Apache-2.0
"""`lakecommit sweep` and `lakecommit expire`: what a table needs now and then.

Contract: only show until they are given `--yes`; see :mod:`~airflow_provider_lakecommit.maintenance.sweep` and
:mod:`~airflow_provider_lakecommit.maintenance.expire`. Nothing is imported for them before they run.

Failure story: a table that cannot be swept, or not be expired, is told, and the exit code is 1; the others are done.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.cli.arguments import Command, duration, natural
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Exit, Output

if TYPE_CHECKING:
    from airflow_provider_lakecommit.maintenance.expire import ExpiredSnapshots
    from airflow_provider_lakecommit.maintenance.sweep import Garbage, SweptTable

__all__ = ["ExpireCommand", "SweepCommand"]

MOST_IN_JSON = 1000
"""Files of a JSON answer; text lists all."""
MEGABYTE = 1e6


class SweepCommand(Command):
    says = "files of redundant and void slices, killed tasks and lost commits: show them, or remove them"
    examples = (
        "sweep orders.yaml",
        "sweep orders.yaml --older-than 7d --yes",
        "sweep --dag land_orders --json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        age = "leave younger files alone (default 3d, the least is the landing's completion_timeout)"
        add("--older-than", type=duration, metavar="TIME", help=age)
        add("--yes", action="store_true", help="remove them; else they are only shown")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.maintenance.sweep import least_age, sweep
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        age = least_age(spec.landing, options.older_than)
        listed: list[dict[str, object]] = []

        def told(table: str, garbage: Garbage) -> None:
            f = garbage.file
            if not output.as_json:
                output.lines([] if options.yes else [f"{f.path} {f.size} bytes: {garbage.why}"])
            elif len(listed) < MOST_IN_JSON:
                listed.append({"table": table, "path": f.path, "bytes": f.size, "why": garbage.why.value})

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            swept = sweep(
                session,
                older_than=age,
                remove=options.yes,
                told=told,
                progress=lambda t: output.log(f"{t.table}: {t.removed} of {t.files} files removed so far"),
            )
        if output.as_json:
            output.result({"tables": [t.to_dict() for t in swept], "files": listed, "removed": options.yes})
        else:
            output.lines(line for t in swept for line in _swept_text(t, options.yes))
            if not options.yes and any(t.files for t in swept):
                output.lines(["nothing is removed: the same with --yes removes them"])
        return _exit(output, ((t.table, t.error) for t in swept))


class ExpireCommand(Command):
    says = "old snapshots of the tables, never one that a ledger needs: show them, or expire them"
    examples = (
        "expire orders.yaml --older-than 7d",
        "expire --dag land_orders --older-than 30d --keep 100 --yes",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--older-than", type=duration, required=True, metavar="TIME", help="younger ones stay, as in 7d")
        add("--keep", type=natural, default=1, metavar="N", help="so many of the newest stay, however old (default 1)")
        add("--yes", action="store_true", help="expire them; else they are only counted")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.maintenance.expire import expire
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            found = list(expire(session, older_than=options.older_than, keep=options.keep, remove=options.yes))
        if output.as_json:
            output.result({"tables": [f.to_dict() for f in found], "written": options.yes})
        else:
            output.lines(_expired_text(f, options.yes) for f in found)
            if any(f.old for f in found):
                what = "" if options.yes else "nothing is expired: the same with --yes does it; "
                output.lines([f"{what}`lakecommit verify` recomputes the history only as far back as it is kept"])
        return _exit(output, ((f.table, f.error) for f in found))


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


def _exit(output: Output, errors: Iterable[tuple[str, str]]) -> int:
    wrong = [text if text.startswith(table) else f"{table}: {text}" for table, text in errors if text]
    for text in wrong:
        output.log(f"WARNING: {text}")
    return Exit.REFUSED if wrong else Exit.DONE
