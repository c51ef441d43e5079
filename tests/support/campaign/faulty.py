# SPDX-License-Identifier: Apache-2.0
"""Runs that end or are disturbed in the middle of their commit: kills, requests that arrive late, lost races."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from tests.fakes.kafka import FakeWriter
from tests.support.campaign.console import NOTHING, Answer
from tests.support.campaign.landing import CampaignLanding
from tests.support.world import Killed, deaths

__all__ = ["hold_back", "kill", "let_arrive", "while_committing"]

LAND = ("land", "SPEC")


def kill(landing: CampaignLanding, chance: Random) -> Answer:
    """A run dies before or after one of its durable steps, if it has so many."""
    with deaths(chance.randint(1, 9), chance.choice(("before", "after")), FakeWriter):
        return _land_alone(landing)


def hold_back(landing: CampaignLanding, chance: Random) -> Answer:
    """A run dies while one of its commit requests is on its way."""

    def held(send: Callable[[], Any]) -> None:
        landing.held[:] = [send]
        raise Killed

    with _at_commit(chance.randint(1, 3), held):
        return _land_alone(landing)


def let_arrive(landing: CampaignLanding, chance: Random) -> Answer | None:
    """That request arrives, whatever has happened since."""
    if not landing.held:
        return NOTHING
    try:
        landing.held.pop()()
    except (CommitFailedException, NoSuchTableError):
        return NOTHING
    return None


def while_committing(act: Callable[[CampaignLanding, Random], object]) -> Callable[[CampaignLanding, Random], Answer]:
    """A run whose commit request comes second, after that of another engine."""

    def raced(landing: CampaignLanding, chance: Random) -> Answer:
        def second(send: Callable[[], Any]) -> Any:
            act(landing, chance)
            return send()

        with _at_commit(chance.randint(1, 3), second):
            return landing.run(*LAND)

    return raced


def _land_alone(landing: CampaignLanding) -> Answer:
    """A run that compacts nothing: a death in its compaction would be that of a thread."""
    landing.options["compact"] = False
    try:
        return landing.run(*LAND)
    finally:
        del landing.options["compact"]


@contextmanager
def _at_commit(nth: int, act: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """In this block the n-th commit request is in the hands of an act."""
    commit, times = SqlCatalog.commit_table, [0]

    def met(catalog: SqlCatalog, *arguments: Any, **more: Any) -> Any:
        times[0] += 1
        send = partial(commit, catalog, *arguments, **more)
        return act(send) if times[0] == nth else send()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", met)
        yield
