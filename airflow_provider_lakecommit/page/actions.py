# SPDX-License-Identifier: Apache-2.0
"""The actions that a user may run for a landing, and their effect now.

An action is a request of the page to Airflow's own API in the name of its user: to trigger a run of a DAG, or to pause
or unpause DAGs. So Airflow's permissions decide, and its audit log names the user. Forbidden actions are shown with the
reason; DAGs that the user may not read are not mentioned.

==============  =======================================================  ============================================
action          is present if                                            its request to Airflow
==============  =======================================================  ============================================
publish_now     a DAG has a `LandingOperationOperator` that does it      a run of that DAG
retry_blocked   a DAG has one of `reset blocked` that may retry          a run of that DAG
verify          a DAG has a `VerifyOperator` for the landing             a run of that DAG
drain           DAGs that land are on, and one publishes                 to pause these, then a run of that one
suspend         DAGs that land are on                                    to pause these
resume          DAGs that land are paused                                to unpause these
==============  =======================================================  ============================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.operations import KnownDag, Operation

ORDER = ("publish_now", "retry_blocked", "verify")


Right = Callable[[str], bool]
"""Whether the user has a right on a DAG, by its id."""


class ActionAnswer(BaseModel):
    """A request to Airflow: pause and unpause DAGs, then run one."""

    kind: str
    does: str
    now: str
    dag: str
    conf: dict[str, str]
    pauses: list[str]
    unpauses: list[str]
    asks: bool
    hindrance: str


def actions(
    row: LandingRow, dags: Mapping[str, KnownDag], reads: Right, triggers: Right, edits: Right
) -> list[ActionAnswer]:
    """Return the actions of a landing that the user may see."""
    if not row.state.landing:
        return []
    # The auth manager may be slow: each right is requested once per DAG.
    triggers, edits = cache(triggers), cache(edits)
    meant = [o for dag, known in dags.items() for o in known.operations if o.landing == row.name and reads(dag)]
    # Of each kind one, of a DAG that the user may run now if possible.
    meant.sort(key=lambda o: (not triggers(o.dag), dags[o.dag].paused, o.dag))
    first = {o.kind: o for o in reversed(meant)}
    runs = {kind: _run(row, first[kind], dags, triggers) for kind in ORDER if kind in first}
    land = [dag for dag in row.dags if dag in dags and reads(dag)]
    on, off = [d for d in land if not dags[d].paused], [d for d in land if dags[d].paused]
    more: list[ActionAnswer] = []
    if on and "publish_now" in runs:
        more.append(_drain(row, on, runs["publish_now"], edits))
    if on:
        more.append(
            _action(
                "suspend",
                does="Airflow starts no further run; open runs end normally",
                now=f"pauses {_named(on)}",
                pauses=on,
                hindrance=_may_not_edit(on, edits),
            )
        )
    if off:
        waits = "" if row.read_lag is None else f"; {_count(row.read_lag, 'record')} wait to be read"
        more.append(
            _action(
                "resume",
                does="Airflow starts runs again",
                now=f"unpauses {_named(off)}{waits}",
                unpauses=off,
                hindrance=_may_not_edit(off, edits),
            )
        )
    return [*runs.values(), *more]


def _action(kind: str, **fields: Any) -> ActionAnswer:
    nothing = {"dag": "", "conf": {}, "pauses": [], "unpauses": [], "asks": False}
    return ActionAnswer(kind=kind, **{**nothing, **fields})


def _run(row: LandingRow, o: Operation, dags: Mapping[str, KnownDag], triggers: Right) -> ActionAnswer:
    does, now, idle = _TOLD[o.kind](row)
    hindrance = (
        f"you may not trigger runs of DAG {o.dag}"
        if not triggers(o.dag)
        else f"DAG {o.dag} is paused: its runs would wait"
        if dags[o.dag].paused
        else idle
    )
    return _action(o.kind, does=does, now=now, dag=o.dag, conf=o.conf, asks=o.asks, hindrance=hindrance)


def _publish_now(row: LandingRow) -> tuple[str, str, str]:
    does = "ends open windows at the current record, and publishes them"
    if not row.running:
        waits = f"; {_count(row.commit_lag, 'reported record')} of ended ones wait" if row.commit_lag else ""
        return does, f"no window is open{waits}", "" if waits else "there is nothing to publish"
    done = sum(c.done for c in row.cycles.cycles[-row.running :])
    return does, f"{_count(row.running, 'window')} open, {_count(done, 'slice')} reported so far", ""


def _retry_blocked(row: LandingRow) -> tuple[str, str, str]:
    does = "reads the blocked ranges again with the next run, under the landing's own budget"
    blocked = [c for c, _, _ in row.state.blocked]
    if not blocked:
        return does, "nothing is blocked", "there is nothing to retry"
    ranges = _count(sum(len(c.items()) for c in blocked), "range")
    return does, f"{_count(sum(len(c) for c in blocked), 'offset')} in {ranges} blocked", ""


_TOLD: Mapping[str, Callable[[LandingRow], tuple[str, str, str]]] = {
    "publish_now": _publish_now,
    "retry_blocked": _retry_blocked,
    "verify": lambda _: (
        "checks that every offset is in the tables exactly once; changes nothing",
        "the run fails if not",
        "",
    ),
}


def _drain(row: LandingRow, on: Sequence[str], publishing: ActionAnswer, edits: Right) -> ActionAnswer:
    publishes = row.running or row.commit_lag
    return _action(
        "drain",
        does="Airflow starts no further run, and everything read is published: then no run is open",
        now=f"pauses {_named(on)}; {publishing.now}",
        # Without anything to publish, pausing is enough.
        dag=publishing.dag if publishes else "",
        conf=publishing.conf,
        pauses=on,
        asks=publishing.asks,
        hindrance=_may_not_edit(on, edits) or (publishing.hindrance if publishes else ""),
    )


def _may_not_edit(dags: Iterable[str], edits: Right) -> str:
    refused = [dag for dag in dags if not edits(dag)]
    return f"you may not pause {_named(refused)}" if refused else ""


def _named(dags: Sequence[str]) -> str:
    return f"DAG {dags[0]}" if len(dags) == 1 else f"DAGs {', '.join(dags)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
