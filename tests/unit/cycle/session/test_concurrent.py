# SPDX-License-Identifier: Apache-2.0
"""Landings side by side: how each ended is known by its name, and none is held up by another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NoReturn
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.exceptions import CatalogError, ClosedError
from tests.fakes.session import FakeLanding

CYCLE = Cycle(commit_id=UUID(int=1), dag="d", run="r", number=0, slot=0)

DEADLINE = 60


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that nothing hangs for ever."""
    event = threading.Event()
    yield event
    event.set()


def wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE)


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def work() -> NoReturn:
        raise error

    return work


def test_each_ends_under_its_name_with_its_result_or_with_what_it_raised() -> None:
    away, exit_code, stop, defect = (
        CatalogError("LC9999", "away"),
        SystemExit(3),
        StopIteration(),
        ValueError("a defect"),
    )
    with ConcurrentLandings() as concurrent:
        ended = concurrent.run(
            {
                "good": lambda: 1,
                "away": raising(away),
                "exit": raising(exit_code),
                "stop": raising(stop),
                "defect": raising(defect),
                "last": lambda: 2,
            }
        )
    assert ended == {"good": 1, "away": away, "exit": exit_code, "stop": stop, "defect": defect, "last": 2}
    assert list(ended) == ["good", "away", "exit", "stop", "defect", "last"]


def test_no_landings_are_no_work() -> None:
    with ConcurrentLandings() as concurrent:
        assert concurrent.run({}) == {}


def test_so_many_work_at_a_time_and_no_more() -> None:
    both, threads = threading.Barrier(2, timeout=DEADLINE), set[threading.Thread]()

    def work() -> None:
        threads.add(threading.current_thread())
        both.wait()

    with ConcurrentLandings(threads=2, slow_after=DEADLINE) as concurrent:
        assert set(concurrent.run({str(n): work for n in range(6)}).values()) == {None}
    assert len(threads) == 2


def test_the_position_of_one_that_takes_long_is_given_to_the_next(gate: threading.Event) -> None:
    with ConcurrentLandings(threads=1, slow_after=0.01) as concurrent:
        ended = concurrent.run({"slow": lambda: wait(gate), "next": gate.set})
    assert ended == {"slow": None, "next": None}


def test_the_most_holds_also_for_those_that_have_just_begun() -> None:
    with ConcurrentLandings(threads=3, most=2) as concurrent, pytest.raises(ValueError, match="threads=3, most=2"):
        concurrent.run({"never": lambda: None})


def test_a_session_is_closed_at_the_end_of_its_block(landing: FakeLanding) -> None:
    with ConcurrentLandings() as concurrent:
        with concurrent.session(lambda: landing.session) as session:
            assert session is landing.session
            assert not landing.control.closed
        assert landing.control.closed


def test_a_member_that_hangs_when_the_call_ends_is_abandoned_and_can_report_nothing_more(
    landing: FakeLanding, gate: threading.Event
) -> None:
    hangs, refused = threading.Event(), list[str]()

    def work() -> None:
        with concurrent.session(lambda: landing.session) as session:
            hangs.set()
            wait(gate)
            with pytest.raises(ClosedError) as caught:
                session.send("commit", CYCLE, 0, [])
            refused.append(str(caught.value))

    thread = threading.Thread(target=work)
    with ConcurrentLandings() as concurrent:
        thread.start()
        wait(hangs)
    assert landing.control.closed
    gate.set()
    thread.join(DEADLINE)
    assert refused == ["the session of landing rows is closed: see the next attempt [LC6220]"]


def test_who_comes_when_the_call_is_over_gets_no_session(landing: FakeLanding) -> None:
    with ConcurrentLandings() as concurrent:
        pass
    with pytest.raises(ClosedError, match="LC6218"), concurrent.session(lambda: landing.session):
        pytest.fail("begun")
    assert landing.control.closed
