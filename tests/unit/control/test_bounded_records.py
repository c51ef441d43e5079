# SPDX-License-Identifier: Apache-2.0
"""What is kept of control records means the same to every reader, and does not grow by what others write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product

import pytest

from airflow_provider_lakecommit.control import bounded_records as room
from airflow_provider_lakecommit.control.bounded_records import bounded, gathered, size_of
from airflow_provider_lakecommit.control.control_log import ControlRecord, group_of
from airflow_provider_lakecommit.control.headers import HEADER, HEADER_LIMIT
from airflow_provider_lakecommit.control.records import entry_of
from airflow_provider_lakecommit.core.log import Entry, Unreadable
from tests.support import hostile
from tests.support.golden_events import golden_bytes

AT = datetime(2026, 1, 1, tzinfo=UTC)
LANDING, GROUP = "orders", "lakecommit-orders"
START_COMMIT, _ = hostile.split(golden_bytes("start_commit", "1.12.0"))


def event(group: str, more: bytes = b"") -> bytes:
    """A START_COMMIT of a group, which ends in what nobody reads."""
    return hostile.record(START_COMMIT, hostile.begins(group) + bytes(16) + more)


EVENT = event(GROUP)
FAILED = b'{"v":1,"lane":"live","kind":"failed","failed":"x","task_attempt":"1"}'
VALUES: dict[str, bytes | None] = {
    **{name: make() for name, make in hostile.events(GROUP).items()},
    "an event": EVENT,
    "an event of another": event("lakecommit-others"),
    "an event of Kafka Connect": event("connect-sink"),
    "no event": b"x" * 900_000,
    "nothing": None,
}
HEADERS: dict[str, tuple[tuple[str, bytes], ...]] = {
    **{name: ((HEADER, make()),) for name, make in hostile.headers().items()},
    "one of ours": ((HEADER, FAILED),),
    "one of ours among others": (("trace", b"x" * 900_000), (HEADER, FAILED), (HEADER, b"second")),
    "a long one": ((HEADER, b"x" * (HEADER_LIMIT + 1)),),
    "others": (("trace", b"x" * 900_000),) * 3,
    "none": (),
}


def record(
    value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ((HEADER, FAILED),), offset: int = 7
) -> ControlRecord:
    return ControlRecord(partition=0, offset=offset, timestamp=AT, key=b"k", value=value, headers=headers)


def meaning(entry: Entry | None) -> object:
    """Return an entry without the words for what cannot be read."""
    return type(entry) if isinstance(entry, Unreadable) else entry


@pytest.mark.parametrize(
    ("message", "about"),
    [*product(VALUES, ["one of ours", "others", "none"]), *product(["an event", "no event"], HEADERS)],
)
def test_a_landing_reads_the_same(message: str, about: str) -> None:
    value, headers = VALUES[message], HEADERS[about]
    whole = record(value, headers)
    kept = bounded(whole)
    assert meaning(entry_of(kept, LANDING, "live")) == meaning(entry_of(whole, LANDING, "live"))
    assert group_of(kept) == group_of(whole)
    ours = any(name == HEADER for name, _ in headers)
    assert size_of(kept) <= HEADER_LIMIT + (len(value or b"") if ours else 70_000) + 100


def flood(write: Callable[[int], ControlRecord], times: int = 400) -> list[ControlRecord]:
    return [write(n) for n in range(times)]


FOREIGN: dict[str, Callable[[int], ControlRecord]] = {
    "headers of others": lambda n: record(EVENT, (("trace", b"x" * 100_000), (HEADER, FAILED)), n),
    "no events": lambda n: record(b"x" * 100_000, (), n),
    "damaged events of a landing": lambda n: record(b"x" * 100_000, offset=n),
    "events of another landing": lambda n: record(event("lakecommit-others", b"x" * 100_000), offset=n),
    "events of Kafka Connect": lambda n: record(event("connect", b"x" * 100_000), (), n),
    "long names of groups": lambda n: record(event("lakecommit-" + "x" * 50_000), offset=n),
}


@pytest.mark.parametrize("write", FOREIGN.values(), ids=FOREIGN)
def test_what_others_write_is_bounded(write: Callable[[int], ControlRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_BYTES", 2_000_000)
    own = record(EVENT, offset=400)
    kept = gathered([*flood(write), own], {GROUP})
    assert [each.offset for each in kept] == list(range(401))
    assert kept[-1] == own
    assert sum(map(size_of, kept)) <= 2_000_000 + size_of(kept[0])


def test_what_a_requested_group_writes_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_BYTES", 1_000_000)
    own = [record(event(GROUP, b"x" * 50_000), offset=2 * n) for n in range(50)]
    others = [record(event("lakecommit-others", b"x" * 10_000), offset=2 * n + 1) for n in range(50)]
    kept = gathered(sorted([*own, *others], key=lambda each: each.offset), {GROUP})
    assert kept[::2] == own
    assert sum(map(size_of, kept[1::2])) < 500_000


def test_a_landing_whose_record_was_cut_hears_that_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_BYTES", 100_000)
    cut = gathered([record(event(GROUP, b"x" * 60_000), offset=n) for n in range(3)], {"lakecommit-another"})
    entries = [entry_of(each, LANDING, "live") for each in cut]
    assert all(isinstance(each, Unreadable) for each in entries[:2])
    assert [entry_of(each, "another", "live") for each in cut] == [None] * 3
