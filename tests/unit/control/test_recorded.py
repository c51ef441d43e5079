# SPDX-License-Identifier: Apache-2.0
"""Control records that an earlier commit wrote are read as what they said then, and are written the same today."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.control import headers as h
from airflow_provider_lakecommit.control.coverage import coverage_to_json
from airflow_provider_lakecommit.control.events import decode, encode
from airflow_provider_lakecommit.control.payloads import DataWritten
from airflow_provider_lakecommit.control.plan_json import plan_to_json, time_to_json
from airflow_provider_lakecommit.control.records import Sender, read_entry
from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    Entry,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from tests.fixtures.recorded import LANDINGS, RecordedLine, control_lines, differences

LINES = control_lines()
OURS = [line for line in LINES if line.ours is not None]
FOREIGN = [line for line in LINES if line.ours is None]
DIRECTIVES = ("released", "voided", "raised")
FOR_OBSERVERS = {"v", "lane", "main"}
"""Keys that no entry holds; `slice` of a file list is another one, which the report of its attempt tells."""
ROLES = {
    "open": "plan",
    "closed": "commit",
    "published": "commit",
    "failed": "commit",
    "files": "write",
    "report": "write",
}


def place(line: RecordedLine) -> str:
    kind = line.ours["kind"] if line.ours else line.decoded["event"]["type"]
    return f"{line.landing}-{kind}-{line.offset}"


def entry_of(line: RecordedLine, landing: str | None = None) -> Entry | None:
    return read_entry(line, landing or line.landing, "live")


def fields_of(entry: Entry | None) -> dict[str, Any]:
    """An entry in the words of its header."""
    values: dict[str, Any]
    match entry:
        case CycleOpened():
            values = {"kind": "open", "cycle": h.cycle_to_json(entry.cycle), "plan": plan_to_json(entry.plan)}
        case CommitFailed():
            values = {"kind": "failed", "failed": entry.reason, "task_attempt": entry.task_attempt}
            values |= {"tables": list(entry.tables)} if entry.tables else {}
        case SliceFiles():
            return {"kind": "files", "attempt": str(entry.attempt), "table": entry.table}
        case SliceReported():
            return {"kind": "report", "report": h.report_to_json(entry.report)}
        case TablePublished():
            values = {"kind": "published", "table": entry.table, "snapshot": entry.snapshot_id}
            values |= {"token": str(entry.token), "ranges": coverage_to_json(entry.coverage)}
        case CycleClosed():
            through = entry.valid_through
            values = {"kind": "closed", "valid_through": None if through is None else time_to_json(through)}
        case _:
            return {}
    return values | h.directives_to_json(entry.directives)


@pytest.mark.parametrize("line", OURS, ids=place)
def test_a_record_is_read_as_what_it_reported(line: RecordedLine) -> None:
    entry = entry_of(line)
    assert entry is not None
    assert (entry.offset, entry.at, entry.commit_id) == (
        line.offset,
        line.timestamp,
        UUID(line.decoded["event"]["commit_id"]),
    )
    assert line.ours is not None
    aside = FOR_OBSERVERS | ({"slice"} if line.ours["kind"] == "files" else set())
    then = {key: value for key, value in line.ours.items() if key not in aside}
    now = json.loads(json.dumps(fields_of(entry)))
    assert list(differences(then, now)) == []
    assert {key: now.get(key) for key in DIRECTIVES} == {key: then.get(key) for key in DIRECTIVES}


@pytest.mark.parametrize("line", LINES, ids=place)
def test_an_event_is_written_today_as_it_was(line: RecordedLine) -> None:
    event = decode(line.value or b"")
    forms = [form for form in ("1.12", "1.10") if encode(event, form=form) == line.value]
    assert forms, "neither form gives these bytes"
    if isinstance(event.payload, DataWritten) and line.landing in LANDINGS:
        assert forms == ["1.10" if line.landing == "returns" else "1.12"]


@pytest.mark.parametrize("line", LINES, ids=place)
def test_a_record_of_another_landing_or_a_connector_is_passed_over(line: RecordedLine) -> None:
    strangers = {"else", *LANDINGS} - ({line.landing} if line.ours else set())
    assert {landing: entry_of(line, landing) for landing in strangers} == dict.fromkeys(strangers)


@pytest.mark.parametrize("line", OURS, ids=place)
def test_each_role_keeps_its_key(line: RecordedLine) -> None:
    """By which observers tell two coordinators of one group from one."""
    assert line.ours is not None
    sender = Sender(landing=line.landing, lane="live", role=ROLES[line.ours["kind"]], commit_id=UUID(int=1))
    assert sender.closed(UUID(int=2), datetime(2026, 1, 1, tzinfo=UTC), None, Directives()).key == line.key


def test_all_that_a_log_may_report_was_recorded() -> None:
    ours = [line.ours for line in OURS if line.ours is not None]
    kinds = Counter(values["kind"] for values in ours)
    assert set(kinds) == {"open", "failed", "files", "report", "published", "closed"}
    fields = {key for values in ours for key in values}
    assert {"released", "raised", "tables"} <= fields
    reports = [values["report"] for values in ours if values["kind"] == "report"]
    assert any(report["blocked"] for report in reports)
    assert any(count[4] for report in reports for count in report["counts"]), "skipped by a person"
    assert any(report["ignored_fields"] for report in reports)
    assert any(value.startswith(b"z:") for line in OURS for _, value in line.headers), "a header that is compressed"
    assert {line.landing for line in OURS} == set(LANDINGS)
    assert {line.decoded["event"]["group_id"] for line in FOREIGN} == {"connect-orders"}
