# SPDX-License-Identifier: Apache-2.0
"""Records that were made to stop their readers: whatever they hold, reading one ends in an answer or in the one error,
within the memory and the time of a small worker. Each is read in a process of its own, whose memory is capped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support import hostile

pytestmark = pytest.mark.long

PROGRAM = r"""
import resource, sys, time, json
from datetime import UTC, datetime, timedelta
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.stall.events import seen_of
from airflow_provider_lakecommit.wire.envelope import unpack
from airflow_provider_lakecommit.wire.events import ControlEventError, decode, glance, head
from airflow_provider_lakecommit.wire.headers import HEADER
from airflow_provider_lakecommit.wire.ledger import decode_ledger
from airflow_provider_lakecommit.wire.quarantine import entry_of
from airflow_provider_lakecommit.cli.control_log import to_dict
from tests.support import hostile
from airflow_provider_lakecommit.kafka.control_log import ControlRecord
from tests.unit.wire.test_records import closed

kind, name, cap = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = getattr(hostile, kind)()[name]()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + cap, used + cap))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))

def answer(read, *args):
    try:
        read(*args)
    except WireError as e:
        return [type(e).__name__, str(e)]
    return ["answer", ""]

def record_of(value, headers):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ControlRecord(partition=0, offset=7, timestamp=at, key=b"k", value=value, headers=headers)

out = {}
if kind == "events":
    for read in (decode, head, glance):
        out[read.__name__] = answer(read, made)
    records = [record_of(made, ()), record_of(made, closed().headers)]
else:
    out["unpack"] = answer(lambda: unpack(made, what="a header"))
    out["ledger"] = answer(lambda: decode_ledger(made.decode("ascii", "replace")))
    from tests.unit.wire.test_records import every_record
    records = [record_of(e.value, ((HEADER, made),)) for e in every_record()]
for record in records:
    seen_of(record.value, key=record.key, headers=record.headers)
    seen_of(record.value, key=record.key, headers=record.headers, group="lakecommit-orders")
    json.dumps(to_dict(record)).encode()
    entries = [e for e in [entry_of(record, "orders", "live")] if e is not None]
    state = fold(entries, (), timedelta(hours=1))
    out.setdefault("quarantined", []).append(state.quarantined_count)
print(json.dumps(out))
"""
CAP = 400 << 20


def read(kind: str, name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, name, str(CAP)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    # What ran into the cap, and was caught there, would have taken all of a machine without one.
    assert "MemoryError" not in done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", hostile.events())
def test_a_forged_event_ends_in_an_answer_or_the_one_error(name: str) -> None:
    found = read("events", name)
    said = {found[reader][0] for reader in ("decode", "head", "glance")}
    assert said <= {"answer", "ControlEventError"}
    if name not in ("a megabyte of empty assignments",):
        assert found["decode"][0] == "ControlEventError"


@pytest.mark.parametrize("story", ["any_novelty", "any_schema", "any_body", "some_bytes_changed", "spliced"])
def test_no_bytes_crash_a_reader_or_take_its_memory(story: str) -> None:
    command = [sys.executable, "-m", "tests.unit.wire.fuzz_events", story]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("name", hostile.headers())
def test_a_forged_header_is_passed_over_by_name(name: str) -> None:
    found = read("headers", name)
    assert found["unpack"][0] in ("answer", "WireError")
    assert found["ledger"][0] == "WireError"
    # What would be shown half is shown whole: the two START_COMMITs are read.
    read_well = 2 if name == "half a character" else 0
    assert sum(found["quarantined"]) == len(found["quarantined"]) - read_well
