# SPDX-License-Identifier: Apache-2.0
"""Records that were made to stop their readers: whatever they hold, reading one ends in an answer or in the one error,
within the memory and the time of a small worker. Each is read in a process of its own, whose memory is capped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support import hostile
from tests.support.forks import Forks

pytestmark = pytest.mark.long

FORKS = Forks(("tests.unit.control.read_hostile", "tests.unit.control.fuzz_events"))

DEAR = (
    *("a megabyte of empty assignments", "a map of nulls", "60 MB of lists", "nested", "texts that do not close"),
    *("15 MB of lists", "60 MB of blanks", "a type that holds itself", "sixteen megabytes", "half a million ranges"),
)


def shared_out(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters; those that take long are for `make test-all`."""
    return [pytest.param(name, marks=[pytest.mark.heavy] if name in DEAR else []) for name in names]


def read(kind: str, name: str) -> dict[str, Any]:
    done = FORKS.run("tests.unit.control.read_hostile:main", kind, name, timeout=600)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    # What ran into the cap, and was caught there, would have taken all of a machine without one.
    assert "MemoryError" not in done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", shared_out(hostile.events()))
def test_a_forged_event_ends_in_an_answer_or_the_one_error(name: str) -> None:
    found = read("events", name)
    answers = {found[reader][0] for reader in ("decode", "head", "glance")}
    assert answers <= {"answer", "ControlEventError"}
    if name not in ("a megabyte of empty assignments",):
        assert found["decode"][0] == "ControlEventError"


@pytest.mark.heavy(but=("any_body", "some_bytes_changed"))
@pytest.mark.parametrize("story", ["any_novelty", "any_schema", "any_body", "some_bytes_changed", "spliced"])
def test_no_bytes_crash_a_reader_or_take_its_memory(story: str) -> None:
    done = FORKS.run("tests.unit.control.fuzz_events:main", story, timeout=600)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("name", shared_out(hostile.headers()))
def test_a_forged_header_is_passed_over_by_name(name: str) -> None:
    found = read("headers", name)
    assert found["unpack"][0] in ("answer", "WireError")
    assert found["ledger"][0] == "WireError"
    # What would be shown half is shown whole: the two START_COMMITs are read.
    read_well = 2 if name == "half a character" else 0
    assert sum(found["quarantined"]) == len(found["quarantined"]) - read_well
