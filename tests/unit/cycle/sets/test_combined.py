# SPDX-License-Identifier: Apache-2.0
"""One request for all who ask at once: each gets its own answer, of a request that began after it asked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_lakecommit.cycle.sets.combined import Combined


def test_those_who_request_while_a_request_is_under_way_share_the_next() -> None:
    began, go_on = threading.Event(), threading.Event()
    requests: list[list[int]] = []

    def do(questions: Sequence[int]) -> Sequence[int]:
        requests.append(list(questions))
        began.set()
        assert go_on.wait(30)
        return [2 * n for n in questions]

    combined = Combined[int, int](do)
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(combined.request, 0)
        assert began.wait(30)
        others = [pool.submit(combined.request, n) for n in range(1, 16)]
        while len(combined._waiting) < 15:
            threading.Event().wait(0.005)
        go_on.set()
        assert [first.result(), *(each.result() for each in others)] == [2 * n for n in range(16)]
    assert len(requests) == 2


def test_what_one_answer_is_raised_for_is_raised_to_that_one_alone() -> None:
    combined = Combined[int, int](lambda questions: [ValueError("mine") if n == 1 else n for n in questions])
    assert combined.request(2) == 2
    with pytest.raises(ValueError, match="mine"):
        combined.request(1)


def test_a_request_that_fails_fails_for_all_of_it_and_the_next_is_made() -> None:
    failing = [True]

    def do(questions: Sequence[int]) -> Sequence[int]:
        if failing.pop() if failing else False:
            raise OSError("away")
        return list(questions)

    combined = Combined[int, int](do)
    with pytest.raises(OSError, match="away"):
        combined.request(1)
    assert combined.request(1) == 1


def test_no_more_than_so_many_are_requested_together() -> None:
    sizes: list[int] = []

    def do(questions: Sequence[int]) -> Sequence[int]:
        sizes.append(len(questions))
        return list(questions)

    combined = Combined[int, int](do, most=3)
    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(combined.request, range(20))) == list(range(20))
    assert max(sizes) <= 3
