# SPDX-License-Identifier: Apache-2.0
"""The collector is as it was, however a block ends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from airflow_provider_lakecommit.cycle.sets.rare_collection import OLDER, YOUNG, rarely_collected

RARE = (YOUNG, OLDER, OLDER)


@pytest.fixture(autouse=True)
def nothing_is_frozen() -> Iterator[None]:
    """As in a process that runs no tests."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_it_is_as_it_was_after_an_error() -> None:
    before = gc.get_threshold()
    observed: list[tuple[int, int, int]] = []

    def work() -> None:
        with rarely_collected():
            observed.append(gc.get_threshold())
            assert gc.get_freeze_count()
            raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        work()
    assert observed == [RARE]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_another_writer_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        with rarely_collected():
            frozen = gc.get_freeze_count()
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()


def test_of_several_at_once_the_last_one_sets_it_back() -> None:
    before, inside, leave = gc.get_threshold(), threading.Event(), threading.Event()

    def other() -> None:
        with rarely_collected():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with rarely_collected():
        thread.start()
        assert inside.wait(30)
    assert gc.get_threshold() == RARE
    leave.set()
    thread.join(30)
    assert gc.get_threshold() == before


def test_what_is_garbage_is_found_within_it() -> None:
    class Knot:
        """Holds itself."""

        def __init__(self) -> None:
            self.itself = self

    found: list[str] = []

    def collected(phase: str, _: dict[str, int]) -> None:
        found.append(phase)

    gc.callbacks.append(collected)
    try:
        with rarely_collected():
            for _ in range(2 * YOUNG):
                Knot()
    finally:
        gc.callbacks.remove(collected)
    assert "stop" in found
