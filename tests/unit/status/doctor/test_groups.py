# SPDX-License-Identifier: Apache-2.0
"""Who else speaks on a control topic, and what that means for those who do not sign."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.headers import HEADER
from airflow_provider_lakecommit.control.payloads import CommitComplete
from airflow_provider_lakecommit.signing import HEADER as SIGNATURE
from airflow_provider_lakecommit.status.doctor.finding import Level
from airflow_provider_lakecommit.status.doctor.groups import OtherGroups, other_groups, shared, sharing
from tests.fakes.session import FakeLanding

OWN = "lakecommit-orders"


@dataclass(frozen=True)
class Record:
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def record(group: str, *names: str) -> Record:
    event = Event(id=uuid4(), timestamp=datetime.now(UTC), group_id=group, payload=CommitComplete(commit_id=uuid4()))
    return Record(encode(event), tuple((name, b"x") for name in names))


def test_groups_are_reported_once_by_their_newest_record() -> None:
    records = [
        record(OWN, HEADER),
        record("lakecommit-b", HEADER),
        record("connect-c"),
        record("lakecommit-b", HEADER, SIGNATURE),
        Record(None),
        Record(b"junk", ((HEADER, b"x"),)),
    ]
    assert other_groups(records, OWN) == {"connect-c": frozenset(), "lakecommit-b": {HEADER, SIGNATURE}}


SIGNS = {"lakecommit-a": frozenset({HEADER, SIGNATURE})}
DOES_NOT = {"lakecommit-b": frozenset({HEADER})}
SINK = {"connect-c": frozenset[str]()}


@pytest.mark.parametrize(
    ("others", "signed", "level", "words"),
    [
        ({}, False, Level.OK, "no records of others"),
        (SIGNS, True, Level.OK, "all landings sign"),
        (SIGNS | SINK, True, Level.OK, "landing a, connector group connect-c"),
        (SIGNS, False, Level.WARN, "this landing does not sign"),
        (SINK, False, Level.WARN, "this landing does not sign"),
        (SIGNS | DOES_NOT, True, Level.WARN, "landing b does not sign"),
    ],
)
def test_who_does_not_sign_on_a_topic_of_several_is_warned(
    others: OtherGroups, signed: bool, level: Level, words: str
) -> None:
    found = shared("control", others, signed=signed)
    assert (found.level, words in found.observed) == (level, True), found.observed
    assert bool(found.remedy) is (level is Level.WARN)


def test_names_that_a_user_made_up_are_cut_and_printed_without_control_characters() -> None:
    others = other_groups([record("lakecommit-\x1b[2J" + "x" * 500, HEADER)], OWN)
    found = shared("control", others, signed=True).observed.partition(";")[0]
    assert found.startswith("control is shared with landing �[2Jx")
    assert len(found) < 130


def test_a_landing_alone_on_its_topic_reads_no_others(tmp_path: Path) -> None:
    landing = FakeLanding(tmp_path)
    landing.cycle()
    (found,) = sharing(landing.session)  # type: ignore[arg-type]
    assert (found.level, "no records of others" in found.observed) == (Level.OK, True)
    landing.session.close()
    landing.catalog.close()
