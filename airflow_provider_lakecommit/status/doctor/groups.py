# SPDX-License-Identifier: Apache-2.0
"""Who writes to the control topic: whether this landing's records are signed, which other groups write there and
whether they sign, and whether two Airflows write as the same deployment.

Kafka does not record the sender of a record; the check reports the groups that the newest :data:`SCANNED_RECORDS`
records of each partition name. A writer for one of them can write in the name of all that do not sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from airflow_provider_lakecommit.control import HEADER, ControlRecord, head
from airflow_provider_lakecommit.core import (
    CommitFailed,
    Cycle,
    CycleClosed,
    CycleOpened,
    Entry,
    SliceReported,
    group_id,
)
from airflow_provider_lakecommit.cycle import BEYOND, LandingSession, own_partition
from airflow_provider_lakecommit.exceptions import ControlTopicError, WireError
from airflow_provider_lakecommit.signing import HEADER as SIGNATURE
from airflow_provider_lakecommit.signing import KEY, UNSIGNED_BELOW, SigningKeys
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

CHECK = "control topic in common"
SIGNATURES = "control signatures"
SCANNED_RECORDS = 2_000
PREFIX = group_id("")
SHOWN = 5
DEPLOYMENT = "deployment id"
SHOWN_RUNS = 3
MOST_LETTERS = 80


OtherGroups = dict[str, frozenset[str]]
"""The other groups of the topic, landings and connectors, with the names of their newest record's headers."""


def other_groups(records: Iterable[ControlRecord], own: str) -> OtherGroups:
    found: OtherGroups = {}
    for record in records:
        try:
            group = head(record.value or b"").group_id
        except WireError:
            continue
        if group != own:
            found[group] = frozenset(name for name, _ in record.headers)
    return {group: found[group] for group in sorted(found)}


def shared(topic: str, others: OtherGroups, *, signed: bool) -> CheckResult:
    """Return the finding for a landing that signs or not, and for the others."""
    if not others:
        return ok(CHECK, f"{topic} holds no records of others")
    observed = f"{topic} is shared with {_text(others)}"
    own_topic = "a control topic for each team (docs: Several teams on one cluster)"
    if not signed:
        return warn(
            CHECK,
            f"{observed}, and this landing does not sign: a writer for one of them can write in its name",
            f"{own_topic}, or `{KEY}` next to the Kafka settings (docs: Security)",
        )
    if unsigned := {g: names for g, names in others.items() if HEADER in names and SIGNATURE not in names}:
        return warn(
            CHECK,
            f"{observed}; {_text(unsigned)} {'does' if len(unsigned) == 1 else 'do'} not sign, so records in such a "
            "name are accepted unverified",
            f"set `{KEY}` there too, or use {own_topic}",
        )
    return ok(CHECK, f"{observed}; all landings sign")


def sharing(session: LandingSession) -> Iterable[CheckResult]:
    control, own = session.control, session.landing.group_id
    try:
        others = other_groups(_newest(session), own)
    except ControlTopicError as e:
        yield ok(CHECK, f"no records could be read yet: {e}")
        return
    yield shared(control.name, others, signed=SigningKeys.of(session.kafka) is not None)


def _newest(session: LandingSession) -> Iterator[ControlRecord]:
    for partition in range(session.control.describe().partitions):
        end = session.control.read(partition, BEYOND).end
        yield from session.control.read(partition, max(0, end - SCANNED_RECORDS)).records


def _text(groups: OtherGroups) -> str:
    more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    return ", ".join(_name(group, landing=HEADER in groups[group]) for group in islice(groups, SHOWN)) + more


def _name(group: str, *, landing: bool) -> str:
    # Any writer may have sent it.
    name = "".join(letter if letter.isprintable() else "�" for letter in group[:MOST_LETTERS])
    return f"landing {name.removeprefix(PREFIX)}" if landing else f"connector group {name}"


def signatures(session: LandingSession) -> Iterable[CheckResult]:
    """Check that the landing's control records are signed, and report ignored ones."""
    keys = SigningKeys.of(session.kafka)
    if keys is None:
        yield warn(
            SIGNATURES,
            f"nothing is signed: any writer to {session.control.name} can block this landing",
            f"set `{KEY}` next to the Kafka settings (docs: Security)",
        )
        return
    try:
        log = session.control.read(own_partition(session))
    except ControlTopicError as e:
        yield ok(SIGNATURES, f"{keys}; no records could be read yet: {e}")
        return
    if doubted := [r.doubt for r in log.records if r.doubt is not None]:
        yield warn(
            SIGNATURES,
            f"{len(doubted)} records are unverified, the newest is {doubted[-1]}",
            "if they are older than the key, leave them: their work is repeated, or accept them "
            f"with `{UNSIGNED_BELOW}: {log.topic_id}/{log.partition}:{log.end}`; if not, check who else writes there",
        )
        return
    yield ok(SIGNATURES, f"{keys}, {len(log.records)} records are verified")


def lived_on(entries: Iterable[Entry]) -> dict[Cycle, Cycle]:
    """Return the cycles that continued after a run of their deployment gave them up, each with that run's cycle."""
    opened: dict[UUID, CycleOpened] = {}
    given_up: dict[UUID, Cycle] = {}
    epochs: set[UUID] = set()
    out: dict[Cycle, Cycle] = {}
    for e in entries:
        if isinstance(e, CycleOpened):
            opened.setdefault(e.commit_id, e)
            epochs = {t.epoch for t in e.plan.targets} or epochs
            found = (opened[dead] for dead in e.directives.released if dead in opened)
            given_up.update((f.commit_id, e.cycle) for f in found if _given_up_for_dead(f, e.cycle, epochs))
        elif isinstance(e, SliceReported | CommitFailed | CycleClosed) and e.commit_id in given_up:
            out[opened[e.commit_id].cycle] = given_up[e.commit_id]
    return out


def _given_up_for_dead(e: CycleOpened, by: Cycle, epochs: set[UUID]) -> bool:
    """Return True if another run of its deployment gave it up, and not because its epochs are over."""
    another = e.cycle.deployment == by.deployment and (e.cycle.dag, e.cycle.run) != (by.dag, by.run)
    return bool(by.deployment) and another and not epochs.isdisjoint(t.epoch for t in e.plan.targets)


def deployments(session: LandingSession) -> Iterable[CheckResult]:
    """Check that no two Airflows have the same deployment id: they would give up each other's runs, and no work gets
    done.

    The sign is a cycle that a run of the same deployment gave up for dead, and that continued. A run that was cleared
    after its end does so too, so it is a warning, which names the runs. A cycle that ended with its epoch was not given
    up for dead. Two Airflows whose runs never overlap, or have the same names, leave no such sign.
    """
    try:
        found = lived_on(session.read_state(()).entries)
    except ControlTopicError as e:
        yield ok(DEPLOYMENT, f"no records could be read yet: {e}")
        return
    if not found:
        yield ok(DEPLOYMENT, "no run continued after another run of its deployment had given it up")
        return
    shown = ", ".join(f"{c.run} of {c.dag} (by {by.run})" for c, by in list(found.items())[-SHOWN_RUNS:])
    names = ", ".join(sorted({c.deployment for c in found}))
    yield warn(
        DEPLOYMENT,
        f"{len(found)} runs of deployment {names} continued after another of its runs had given them up: {shown}",
        "if two Airflows have that [lakecommit] deployment_id, give each its own; runs that were cleared after their "
        "end look the same",
    )
