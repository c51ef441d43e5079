# SPDX-License-Identifier: Apache-2.0
"""`lakecommit dead-letters list|show|replay`.

Contract: `list` and `show` read only; `replay` tells what would come of it until it is given `--yes`, on a terminal it
asks. See :mod:`~airflow_provider_lakecommit.dead_letters.replay`. Nothing is imported for them before they run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.cli.arguments import Command, moment, positive
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Exit, Output

if TYPE_CHECKING:
    from airflow_provider_lakecommit.dead_letters.counts import KindCount
    from airflow_provider_lakecommit.dead_letters.letters import DeadLetter, Selection
    from airflow_provider_lakecommit.dead_letters.replay import Replayed

__all__ = ["DeadLettersListCommand", "DeadLettersReplayCommand", "DeadLettersShowCommand"]

MOST_SHOWN = 200
"""Characters of a value that are shown to people."""


class DeadLettersListCommand(Command):
    says = "dead letters by kind, and how many of them are open"
    examples = (
        "dead-letters list orders.yaml",
        "dead-letters list --dag land_orders --json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        _add_selection(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.dead_letters.counts import counted
        from airflow_provider_lakecommit.dead_letters.letters import table_name
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            found = counted(session, _selection(options), options.table)
        name = table_name(spec.landing, options.table)
        if output.as_json:
            output.result({"table": name, "kinds": [one.to_dict() for one in found]})
        else:
            output.lines(_list_text(name, found))
        return Exit.DONE


class DeadLettersShowCommand(Command):
    says = "open dead letters with their values"
    examples = (
        "dead-letters show orders.yaml --kind wrong_value:id --limit 3",
        "dead-letters show --dag land_orders --range orders:3=15-20 --json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        _add_selection(parser, limit=10)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.dead_letters.counts import open_letters
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            for letter in open_letters(session, _selection(options), options.table):
                if output.as_json:
                    output.result(_letter_to_dict(letter))
                else:
                    output.lines(_letter_text(letter))
        return Exit.DONE


class DeadLettersReplayCommand(Command):
    says = "make rows of open dead letters, after a fix; tell how many would be some"
    examples = (
        "dead-letters replay orders.yaml",
        'dead-letters replay orders.yaml --kind wrong_value:id --yes --reason "id may be text"',
        "dead-letters replay --dag land_orders --range orders:3=15-20 --yes",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        _add_selection(parser)
        parser.add_argument("--yes", action="store_true", help="do it; else it is only told what would come of it")
        parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the table's history")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.dead_letters.replay import replay
        from airflow_provider_lakecommit.session.landing_session import LandingSession
        from airflow_provider_lakecommit.terminal.confirm import asked, at_a_terminal, decision_of

        selection, yes, written = _selection(options), options.yes, False
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            if not yes:
                done = replay(session, selection, table=options.table)
                if done.letters and not output.as_json and at_a_terminal():
                    output.lines(_replay_text(done, written=False))
                    yes = asked(output)
            if yes:
                decision = decision_of("dead-letters replay", spec.landing.name, options.reason)
                done = replay(
                    session,
                    selection,
                    table=options.table,
                    decision=decision,
                    progress=lambda r: output.log(f"{r.letters} dead letters are replayed so far"),
                )
                written = True
        if output.as_json:
            output.result({"landing": spec.landing.name, "written": written, **done.to_dict()})
            return Exit.DONE
        output.lines(_replay_text(done, written=written))
        if done.letters and not written:
            output.lines(["nothing is written: the same with --yes does it"])
        return Exit.DONE


def _add_selection(parser: ArgumentParser, limit: int | None = None) -> None:
    add = parser.add_argument
    kind = "only of this kind, as in wrong_value or wrong_value:id (may be repeated)"
    add("--kind", action="append", default=[], metavar="KIND[:COLUMN]", help=kind)
    add("--range", action="append", metavar="TOPIC:PARTITION=FROM-TO", help="only these offsets (may be repeated)")
    add("--since", type=moment, metavar="TIME", help="only of records with a time from then on, as 2026-03-01T12:00Z")
    add("--until", type=moment, metavar="TIME", help="only of records with a time before that")
    most = "" if limit is None else f" (default {limit})"
    add("--limit", type=positive, default=limit, metavar="N", help=f"not more than N of them{most}")
    add("--table", metavar="NAME", help="a dead-letter table that the landing had before")


def _selection(options: Namespace) -> Selection:
    from airflow_provider_lakecommit.dead_letters.letters import Selection
    from airflow_provider_lakecommit.repair.stated import parse_ranges

    times = [None if at is None else datetime.fromtimestamp(at, UTC) for at in (options.since, options.until)]
    return Selection(
        kinds=tuple(options.kind),
        ranges=parse_ranges(options.range or ()),
        since=times[0],
        until=times[1],
        limit=options.limit,
    )


def _list_text(name: str, found: list[KindCount]) -> Iterator[str]:
    from airflow_provider_lakecommit.dead_letters.open_set import State

    many, left = sum(one.states.total() for one in found), sum(one.states[State.OPEN] for one in found)
    yield f"{name}: {many} dead letters, {left} open"
    for one in found:
        others = ", ".join(f"{n} {state}" for state, n in one.states.items() if state is not State.OPEN)
        first = f"; the first open one is {one.first}" if one.first else ""
        yield f"  {one.kind}: {one.states[State.OPEN]} open{f', {others}' if others else ''}: {one.reason}{first}"


def _letter_text(letter: DeadLetter) -> Iterator[str]:
    from airflow_provider_lakecommit.dead_letters.counts import where

    at = letter.row["timestamp"]
    yield f"{where(letter)} {'no time' if at is None else at.isoformat()} {letter.kind}: {letter.row['reason']}"
    text = repr(letter.value().decode(errors="backslashreplace"))[1:-1] if letter.value() is not None else "no value"
    rest = f"… ({len(letter.value())} bytes)" if len(text) > MOST_SHOWN else ""
    yield f"  {text[:MOST_SHOWN]}{rest}"


def _letter_to_dict(letter: DeadLetter) -> dict[str, object]:
    def told(value: bytes | None) -> dict[str, str] | None:
        try:
            return None if value is None else {"text": value.decode()}
        except UnicodeDecodeError:
            return {"hex": bytes(value or b"").hex()}

    headers = [{"key": key, "value": told(value)} for key, value in letter.headers()]
    return {**letter.row, "key": told(letter.key()), "value": told(letter.value()), "headers": headers}


def _replay_text(done: Replayed, *, written: bool) -> Iterator[str]:
    rows = "" if done.rows == done.letters else f", {done.rows} rows"
    yield f"{done.letters} dead letters {'were replayed' if written else 'would be rows now'}{rows}"
    for kind, count in done.refused.most_common():
        yield f"  {count} stay open, {kind}: {done.reasons[kind]}"
    for state, count in done.others.most_common():
        if count:
            yield f"  {count} are not open: {state}"
