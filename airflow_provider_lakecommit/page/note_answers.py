# SPDX-License-Identifier: Apache-2.0
"""The answer of the status API about a landing's notes and its newest plan, version 1.

Contract: that of :mod:`~airflow_provider_lakecommit.page.answers`. The newest comes first. What records hold is told by
``samples`` alone (:mod:`~airflow_provider_lakecommit.page.table_answers` says to whom).
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_lakecommit.page.cycle_answers import moment
from airflow_provider_lakecommit.page.explained import ExplainedPlan
from airflow_provider_lakecommit.page.notes import LandingNotes
from airflow_provider_lakecommit.page.table_answers import SamplesAnswer

__all__ = ["NotesAnswer", "notes_answer"]


class SpecAnswer(BaseModel):
    """A version of the spec, and the first run that planned by it."""

    version: str
    since: datetime
    dag: str
    run: str


class DecisionAnswer(BaseModel):
    """What a person did by hand."""

    at: str
    command: str
    actor: str
    host: str
    reason: str
    what: str


class RejectAnswer(BaseModel):
    """Records of one kind that were rejected; ``ranges`` are those of the newest slice that had some."""

    kind: str
    records: int
    since: datetime
    at: datetime
    ranges: list[str]
    reason: str


class PlanAnswer(BaseModel):
    """What the newest plan task told of its window, line by line."""

    dag: str
    run: str
    task: str
    at: datetime | None
    lines: list[str]


class NotesAnswer(BaseModel):
    """All of a landing. ``plan`` is there where a plan task told one, and the user may see it."""

    specs: list[SpecAnswer]
    decisions: list[DecisionAnswer]
    rejects: list[RejectAnswer]
    samples: SamplesAnswer
    plan: PlanAnswer | None


def notes_answer(notes: LandingNotes, plan: ExplainedPlan | None, samples: SamplesAnswer) -> NotesAnswer:
    """The answer."""
    return NotesAnswer(
        specs=[SpecAnswer(version=s.version, since=moment(s.at), dag=s.dag, run=s.run) for s in reversed(notes.specs)],
        # The fields of these and of the plan are those of what they tell.
        decisions=[DecisionAnswer.model_validate(d, from_attributes=True) for d in reversed(notes.decisions)],
        rejects=[
            RejectAnswer(
                kind=r.kind,
                records=r.records,
                since=moment(r.since),
                at=moment(r.at),
                ranges=list(r.ranges),
                reason=r.reason,
            )
            for r in reversed(notes.rejects)
        ],
        samples=samples,
        plan=None if plan is None else PlanAnswer.model_validate(plan, from_attributes=True),
    )
