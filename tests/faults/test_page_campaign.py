# SPDX-License-Identifier: Apache-2.0
"""Every number on the page is the table's, through a campaign of failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from tests.support.campaign.console import Answer
from tests.support.campaign.faulty import kill
from tests.support.campaign.landing import CampaignLanding
from tests.support.campaign.operations import OPERATIONS
from tests.support.campaign.page import page_of
from tests.support.campaign.play import memory_player

pytestmark = pytest.mark.faults

Act = Callable[[CampaignLanding, Random], Answer | None]
STEPS = 12
EVERYWHERE = [("plain", 0), ("plain", 1), ("plain", 2), ("plain", 21), ("upsert-soft", 0)]
MORE = [(shape, seed) for shape in ("plain", "upsert-soft") for seed in range(40) if (shape, seed) not in EVERYWHERE]


def stall(landing: CampaignLanding, _: Random) -> Answer:
    """A run whose catalog refuses each commit."""

    def away(*_: Any, **__: Any) -> None:
        raise ForbiddenError("the role may not commit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", away)
        return landing.run("land", "SPEC")


def strict(landing: CampaignLanding, chance: Random) -> Answer:
    """A run that allows few rejected records, so that ranges are blocked."""
    landing.options.update(unknown_fields="dead_letter", dead_letter_max_records=1)
    landing.produce(chance)
    return landing.run("land", "SPEC")


def lenient(landing: CampaignLanding, _: Random) -> Answer:
    """What was blocked is read again by a spec that allows all."""
    landing.options.update(unknown_fields="ignore", dead_letter_max_records=100_000)
    landing.run("reset", "blocked", "SPEC", "--retry", "--yes")
    return landing.run("land", "SPEC")


FAILURES: Mapping[str, Act] = {"stall": stall, "strict": strict, "lenient": lenient, "kill": kill}
MOVES = (
    *("rollback", "replay", "reset-earliest", "reset-offsets", "reset-blocked", "reset-delete", "reset-hard"),
    *("partitions", "retention", "topic-anew"),
)
"""What no record of the control topic tells of before the next run: commits that move a ledger, and changed topics."""
KINDS = (
    *("land", "land", "land", "stall", "stall", "strict", "lenient", "kill", "kill"),
    *("backfill-some", "backfill", "dead-letters", "compact", "compaction", "expire"),
    *MOVES,
)


@pytest.mark.parametrize(
    ("shape", "seed"), [*EVERYWHERE, *(pytest.param(*one, marks=pytest.mark.campaign) for one in MORE)]
)
def test_every_number_on_the_page_is_the_tables(tmp_path: Path, shape: str, seed: int) -> None:
    chance, moved, told = Random(seed), False, list[str]()
    with memory_player(tmp_path, shape) as player, page_of(player, player.landing.logs) as page:
        player.begin(Random(seed), sink=False)
        for _ in range(STEPS):
            kind = chance.choice([k for k in KINDS if k in FAILURES or shape in OPERATIONS[k].shapes])
            while chance.random() < 0.6:
                player.landing.produce(chance)
            answer = (FAILURES.get(kind) or OPERATIONS[kind].act)(player.landing, chance)
            told.append(kind if answer is None else f"{kind}: {answer.code} {answer.error[:120]}")
            lands = kind in ("land", "lenient") and answer is not None and answer.done
            moved = kind in MOVES or (answer is not None and answer.killed) or (moved and not lands)
            assert page.differences(moved=moved) == [], "\n".join(told)
