# SPDX-License-Identifier: Apache-2.0
"""Every number on the page is the table's, through a campaign of failures."""

from __future__ import annotations

import json
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
SHAPES = ("plain", "upsert-soft", "audit", "set")
EVERYWHERE = [
    *(("plain", 0), ("plain", 1), ("plain", 2), ("plain", 21), ("upsert-soft", 0)),
    *(("audit", 0), ("audit", 1), ("audit", 2), ("set", 0), ("set", 1)),
]
MORE = [(shape, seed) for shape in SHAPES for seed in range(40) if (shape, seed) not in EVERYWHERE]
AUDIT = {"checks": ["SELECT * FROM added_rows WHERE id < 0"], "branch": "audit"}


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


def wrong(landing: CampaignLanding, chance: Random) -> Answer:
    """A run whose new rows the check refuses."""
    landing.next_id += 1
    row = {"id": -landing.next_id, "name": f"n-{landing.next_id}"}
    partition = chance.randrange(landing.partitions)
    landing.cluster.produce(landing.topic, [(str(row["id"]), json.dumps(row))], partition)
    return landing.run("land", "SPEC")


def decide(how: str) -> Act:
    """An operator publishes the refused rows, or drops them from their branch."""
    return lambda landing, _: landing.run("reset", "blocked", "SPEC", how, "--yes")


FAILURES: Mapping[str, Act] = {"stall": stall, "strict": strict, "lenient": lenient, "kill": kill}
AUDITS: Mapping[str, Act] = {"wrong": wrong, "release": decide("--release"), "drop": decide("--drop")}
MOVES = (
    *("rollback", "replay", "reset-earliest", "reset-offsets", "reset-blocked", "reset-delete", "reset-hard"),
    *("partitions", "retention", "topic-anew", "set-change", "release", "drop"),
)
"""What no record of the control topic tells of before the next run: commits that move a ledger, and changed topics."""
KINDS = (
    *("land", "land", "land", "stall", "stall", "strict", "lenient", "kill", "kill", "wrong", "wrong"),
    *("backfill-some", "backfill", "dead-letters", "compact", "compaction", "expire"),
    *MOVES,
)


def acts_of(shape: str) -> Mapping[str, Act]:
    """Return what can happen to a landing, or to a set, whose landings are threads of one process: none dies alone."""
    of_campaign = {k: o.act for k, o in OPERATIONS.items() if ("plain" if shape == "audit" else shape) in o.shapes}
    found = {**of_campaign, **FAILURES, **(AUDITS if shape == "audit" else {})}
    return {kind: act for kind, act in found.items() if kind != "kill" or shape != "set"}


@pytest.mark.parametrize(
    ("shape", "seed"), [*EVERYWHERE, *(pytest.param(*one, marks=pytest.mark.campaign) for one in MORE)]
)
def test_every_number_on_the_page_is_the_tables(tmp_path: Path, shape: str, seed: int) -> None:
    chance, moved, given_up, told, acts = Random(seed), False, False, list[str](), acts_of(shape)
    options = AUDIT if shape == "audit" else {}
    with (
        memory_player(tmp_path, "plain" if shape == "audit" else shape, **options) as player,
        page_of(player, player.landing.logs) as page,
    ):
        player.begin(Random(seed), sink=False)
        for _ in range(STEPS):
            kind = chance.choice([k for k in KINDS if k in acts])
            player.landing.choose(chance)
            while chance.random() < 0.6:
                player.landing.produce(chance)
            # The log does not tell which blocked ranges a reset gives up; the page sees it with their next records.
            given_up |= kind == "reset-hard" and any(shown["blocked"] for shown in page.answers().values())
            answer = acts[kind](player.landing, chance)
            told.append(kind if answer is None else f"{kind}: {answer.code} {answer.error[:120]}")
            lands = kind in ("land", "lenient") and answer is not None and answer.done
            moved = kind in MOVES or (answer is not None and answer.killed) or (moved and not lands)
            assert page.differences(moved=moved or given_up) == [], "\n".join(told)
