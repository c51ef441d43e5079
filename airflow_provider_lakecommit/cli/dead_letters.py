# SPDX-License-Identifier: Apache-2.0
"""`lakecommit dead-letters`: count rejected records, show their values, and replay them after a fix."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from airflow_provider_lakecommit.cli.terminal.confirm import decision_of
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import DEAD_LETTERS, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.operations import (
    DeadLetter,
    KindCount,
    Replayed,
    Selection,
    State,
    counted,
    moment_of,
    open_dead_letters,
    parse_ranges,
    replay,
    table_name,
    where,
)

MOST_SHOWN = 200
MOST_VALUES = 10
"""Dead letters shown with their values by default."""


def dead_letters(session: LandingSession, options: Namespace, output: Output) -> int:
    if options.replay:
        return _replay(session, options, output)
    if options.values:
        for letter in open_dead_letters(session, _selection(options, options.limit or MOST_VALUES), options.table):
            output.answer(_letter_to_dict(letter), _letter_text(letter))
        return Exit.DONE
    found = counted(session, _selection(options, options.limit), options.table)
    name = table_name(session.landing, options.table)
    output.answer({"table": name, "kinds": [one.to_dict() for one in found]}, _list_text(name, found))
    return Exit.DONE


def _replay(session: LandingSession, options: Namespace, output: Output) -> int:
    name, written = session.landing.name, not options.dry_run
    done = replay(
        session,
        _selection(options, options.limit),
        table=options.table,
        decision=decision_of(f"{spoken(DEAD_LETTERS)} --replay", name, options.reason) if written else None,
        progress=lambda r: output.log(f"replayed {r.dead_letters} dead letters so far"),
    )
    output.answer({"landing": name, "written": written, **done.to_dict()}, _replay_text(done, written=written))
    return Exit.DONE


def _selection(options: Namespace, limit: int | None) -> Selection:
    return Selection(
        kinds=tuple(options.kind),
        ranges=parse_ranges(options.range or ()),
        since=moment_of(options.since, "since"),
        until=moment_of(options.until, "until"),
        limit=limit,
    )


def _list_text(name: str, found: list[KindCount]) -> Iterator[str]:
    many, left = sum(one.states.total() for one in found), sum(one.states[State.OPEN] for one in found)
    yield f"{name}: {many} dead letters, {left} open"
    for one in found:
        others = ", ".join(f"{n} {state}" for state, n in one.states.items() if state is not State.OPEN)
        first = f"; the first open one is {one.first}" if one.first else ""
        yield f"  {one.kind}: {one.states[State.OPEN]} open{f', {others}' if others else ''}: {one.reason}{first}"


def _letter_text(letter: DeadLetter) -> Iterator[str]:
    at = letter.row["timestamp"]
    yield f"{where(letter)} {'no time' if at is None else at.isoformat()} {letter.kind}: {letter.row['reason']}"
    text = repr(letter.value().decode(errors="backslashreplace"))[1:-1] if letter.value() is not None else "no value"
    rest = f"… ({len(letter.value())} bytes)" if len(text) > MOST_SHOWN else ""
    yield f"  {text[:MOST_SHOWN]}{rest}"


def _letter_to_dict(letter: DeadLetter) -> dict[str, object]:
    def text_of(value: bytes | None) -> dict[str, str] | None:
        try:
            return None if value is None else {"text": value.decode()}
        except UnicodeDecodeError:
            return {"hex": bytes(value or b"").hex()}

    headers = [{"key": key, "value": text_of(value)} for key, value in letter.headers()]
    return {**letter.row, "key": text_of(letter.key()), "value": text_of(letter.value()), "headers": headers}


def _replay_text(done: Replayed, *, written: bool) -> Iterator[str]:
    rows = "" if done.rows == done.dead_letters else f", {done.rows} rows"
    yield f"{done.dead_letters} dead letters {'were replayed' if written else 'can become rows'}{rows}"
    for kind, count in done.refused.most_common():
        yield f"  {count} stay open, {kind}: {done.reasons[kind]}"
    for state, count in done.others.most_common():
        if count:
            yield f"  {count} are not open: {state}"
