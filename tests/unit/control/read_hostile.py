# SPDX-License-Identifier: Apache-2.0
"""Reads one record that was made to stop its readers, in a process whose memory and time are capped.

Run by `test_hostile_records.py`. What each reader came to is printed as JSON.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from airflow_provider_lakecommit.cli.control_log import to_dict
from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.events import decode, glance, head
from airflow_provider_lakecommit.control.headers import HEADER
from airflow_provider_lakecommit.control.ledger_text import decode_ledger
from airflow_provider_lakecommit.control.packed_text import unpack
from airflow_provider_lakecommit.control.records import entry_of
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.stall.observed_events import observed_record
from tests.support import hostile
from tests.unit.control.test_records import closed, every_record

CAP = 400 << 20
CPU_SECONDS = 20


def capped(memory: int, seconds: int) -> None:
    """From here on this process gets so much more memory, in bytes, and so much of a processor."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def answer(read: Callable[[], object]) -> tuple[str, str]:
    """What a reader came to: an answer, or the one error and its text."""
    try:
        read()
    except WireError as e:
        return type(e).__name__, str(e)
    return "answer", ""


def record_of(value: bytes | None, headers: tuple[tuple[str, bytes], ...]) -> ControlRecord:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ControlRecord(partition=0, offset=7, timestamp=at, key=b"k", value=value, headers=headers)


def main(arguments: Sequence[str]) -> int:
    """:param arguments: `events` or `headers`, and the name of one of them"""
    kind, name = arguments
    made: bytes = getattr(hostile, kind)()[name]()
    capped(CAP, CPU_SECONDS)
    out: dict[str, object] = {}
    if kind == "events":
        for read in (decode, head, glance):
            out[read.__name__] = answer(partial(read, made))
        records = [record_of(made, ()), record_of(made, closed().headers)]
    else:
        out["unpack"] = answer(lambda: unpack(made, what="a header"))
        out["ledger"] = answer(lambda: decode_ledger(made.decode("ascii", "replace")))
        records = [record_of(e.value, ((HEADER, made),)) for e in every_record()]
    out["quarantined"] = [quarantined(record) for record in records]
    print(json.dumps(out))
    return 0


def quarantined(record: ControlRecord) -> int:
    """How many records all other readers pass over, which each of them tries."""
    observed_record(record.value, key=record.key, headers=record.headers)
    observed_record(record.value, key=record.key, headers=record.headers, group="lakecommit-orders")
    json.dumps(to_dict(record)).encode()
    entries = [e for e in [entry_of(record, "orders", "live")] if e is not None]
    return fold(entries, (), timedelta(hours=1)).quarantined_count
