# SPDX-License-Identifier: Apache-2.0
"""Whether the control records of this landing are signed, which other groups write there, and whether they sign.

Kafka does not record the sender of a record; the check reports the groups that the newest :data:`SCANNED_RECORDS`
records of each partition name. A writer for one of them can write in the name of all that do not sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_lakecommit.control import HEADER, head
from airflow_provider_lakecommit.core import group_id
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
MOST_LETTERS = 80


class Record(Protocol):
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGroup:
    """Another group of the topic, a landing or a connector, and whether its newest record has a signature."""

    group: str
    landing: bool
    signs: bool

    def __str__(self) -> str:
        # Any writer may have sent it.
        name = "".join(letter if letter.isprintable() else "�" for letter in self.group[:MOST_LETTERS])
        return f"landing {name.removeprefix(PREFIX)}" if self.landing else f"connector group {name}"


def other_groups(records: Iterable[Record], own: str) -> tuple[OtherGroup, ...]:
    """Return the groups of these records except the own one, by name."""
    found: dict[str, OtherGroup] = {}
    for record in records:
        names = {name for name, _ in record.headers}
        try:
            group = head(record.value or b"").group_id
        except WireError:
            continue
        if group != own:
            found[group] = OtherGroup(group=group, landing=HEADER in names, signs=SIGNATURE in names)
    return tuple(found[group] for group in sorted(found))


def shared(topic: str, others: tuple[OtherGroup, ...], *, signed: bool) -> CheckResult:
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
    if unsigned := tuple(n for n in others if n.landing and not n.signs):
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


def _newest(session: LandingSession) -> Iterator[Record]:
    for partition in range(session.control.describe().partitions):
        end = session.control.read(partition, BEYOND).end
        yield from session.control.read(partition, max(0, end - SCANNED_RECORDS)).records


def _text(groups: tuple[OtherGroup, ...]) -> str:
    more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    return ", ".join(map(str, groups[:SHOWN])) + more


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
