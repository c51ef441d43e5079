# SPDX-License-Identifier: Apache-2.0
"""Everything that can happen to a landing in the campaign: one line of :data:`OPERATIONS` each.

Contract: an act returns the answer of its command, None where it is no command, or :data:`NOTHING` where there is
nothing to do. What it chooses, it chooses by the step's own chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pyiceberg.table.snapshots import Operation as Change

from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from tests.support.campaign.console import NOTHING, Answer
from tests.support.campaign.faulty import hold_back, kill, let_arrive, while_committing
from tests.support.campaign.landing import TOPICS, CampaignLanding
from tests.support.campaign.model import Nature
from tests.support.campaign.reader import DEAD, ROWS
from tests.support.campaign.sink import ADOPT, RESCUE, is_sinks, land_by_sink
from tests.support.campaign.upserts import WAYS

__all__ = ["OPERATIONS", "SHAPES", "Operation", "operations_of"]

MOST_PARTITIONS = 4
APPENDS, UPSERTS = ("plain", "sink", "set", "several"), tuple(WAYS)
SHAPES = (*APPENDS, *UPSERTS)
"""What a sequence is played on: a landing, one that goes on in the table of a sink, a set of landings, one that makes
several rows of a record, or a landing that upserts in one of several ways.
"""
SINK, SET, DYING = ("sink",), ("set",), ("several", *UPSERTS)
SOME = ("--cycles", "1", "--max-records", "4")
"""Of a run that leaves its range half done."""

Act = Callable[[CampaignLanding, Random], Answer | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``weight`` is how often it comes; ``revives``: dead letters become rows next to their entry; ``real``: it can be
    done on real brokers; ``shapes``: of what it is an operation.
    """

    nature: Nature
    act: Act
    weight: int = 2
    revives: bool = False
    real: bool = True
    shapes: tuple[str, ...] = SHAPES


def _run(*words: str) -> Act:
    return lambda landing, chance: landing.run(*words)


def _range(landing: CampaignLanding, chance: Random) -> tuple[str, ...]:
    """A range of a partition, half of the time to its end; now and then all of the topic."""
    if chance.random() < 0.2:
        return ("--since", "2020-01-01")
    p = chance.randrange(landing.partitions)
    start, end = landing.borders(p)
    first = chance.randint(start, max(start, end - 1))
    last = end if chance.random() < 0.5 else chance.randint(first + 1, max(first + 1, end))
    return ("--range", f"{landing.topic}:{p}={first}-{last}")


def _ranged(command: str, *more: str) -> Act:
    return lambda landing, chance: landing.run(command, "SPEC", *_range(landing, chance), *more)


def _reset_to(*more: str) -> Act:
    def act(landing: CampaignLanding, chance: Random) -> Answer:
        p = chance.randrange(landing.partitions)
        start, end = landing.borders(p)
        place = f"{landing.topic}:{p}={chance.randint(start, end)}"
        return landing.run("reset", "offsets", "SPEC", "--from", place, *more, "--yes")

    return act


def _fill(landing: CampaignLanding, chance: Random) -> Answer:
    return landing.run("reset", "offsets", "SPEC", "--from", "latest", "--fill", landing.new_name("hole"), "--yes")


def _lane(landing: CampaignLanding, chance: Random) -> Answer:
    """An open stream is finished."""
    lanes = landing.lanes()
    return landing.finish_lane(chance.choice(lanes)) if lanes else NOTHING


def _close(landing: CampaignLanding, chance: Random) -> Answer:
    lanes = landing.lanes()
    if not lanes:
        return NOTHING
    return landing.run("backfill", "SPEC", "--close", str(chance.choice(lanes)["lane"]), "--yes")


def _blocked(landing: CampaignLanding, chance: Random) -> Answer:
    how = chance.choice((("--retry",), ("--skip",), ("--raise", "1000:1.0")))
    answer = landing.run("reset", "blocked", "SPEC", *how, "--yes")
    return NOTHING if "nothing is blocked" in answer.error else answer


def _rule(landing: CampaignLanding, chance: Random) -> None:
    """The spec rejects unknown fields from now on, or ignores them; and how many rejects it takes."""
    landing.options["unknown_fields"] = chance.choice(("ignore", "dead_letter"))
    landing.options["dead_letter_max_records"] = chance.choice((2, 100_000, 100_000))


def _anew(landing: CampaignLanding, chance: Random) -> None:
    landing.cluster.create(landing.topic, chance.randint(1, 3))
    for _ in range(chance.randint(0, 3)):
        landing.produce(chance)


def _retention(landing: CampaignLanding, chance: Random) -> None:
    p = chance.randrange(landing.partitions)
    start, end = landing.borders(p)
    landing.cluster.remove_before(landing.topic, p, chance.randint(start, end))


def _truncation(landing: CampaignLanding, chance: Random) -> None:
    """A log loses its newest records, and others come."""
    p = chance.randrange(landing.partitions)
    start, end = landing.borders(p)
    landing.cluster.truncate(landing.topic, p, chance.randint(max(start, end - 8), end))
    landing.produce(chance, p)


def _grown(landing: CampaignLanding, chance: Random) -> Answer | None:
    if landing.partitions >= MOST_PARTITIONS:
        return NOTHING
    landing.cluster.grow(landing.topic, landing.partitions + 1)
    landing.produce(chance, landing.partitions - 1)
    return None


def _compaction(landing: CampaignLanding, chance: Random) -> Answer | None:
    """Another engine makes one file of all rows of a table."""
    with landing.another_engine() as catalog:
        name = landing.table(chance.choice((ROWS, ROWS, DEAD)))
        if not catalog.table_exists(name):
            return NOTHING
        table = catalog.load_table(name)
        if not (rows := table.scan().to_arrow()):
            return NOTHING
        table.overwrite(rows)
    return None


def _rollback(landing: CampaignLanding, chance: Random) -> Answer | None:
    """Another engine sets a table back by some snapshots; not to one in the middle of a compaction."""
    with landing.another_engine() as catalog:
        name = landing.table(chance.choice((ROWS, ROWS, DEAD)))
        if not catalog.table_exists(name):
            return NOTHING
        table = catalog.load_table(name)
        line = [s for s in _ancestry(table) if s.summary is None or s.summary.operation is not Change.DELETE]
        older = line[1:4]
        if not older:
            return NOTHING
        table.manage_snapshots().set_current_snapshot(chance.choice(older).snapshot_id).commit()
        if landing.adopted and name == ROWS:
            # An operator has the connector run where it is its turn, and nowhere else.
            landing.sinks_turn = is_sinks(catalog.load_table(name))
    # Also where no row went: the ledger may have.
    landing.model.touched = True
    return None


def _adopt(landing: CampaignLanding, chance: Random) -> Answer:
    """The landing goes on for the sink, after what that has landed."""
    if not landing.sinks_turn:
        return NOTHING
    answer = landing.run(*ADOPT)
    landing.sinks_turn = not answer.done
    return answer


def _hand_back(landing: CampaignLanding, chance: Random) -> Answer:
    if landing.sinks_turn or not landing.adopted:
        return NOTHING
    answer = landing.run(*ADOPT, "--back")
    landing.sinks_turn = answer.done
    return answer


def _sink(landing: CampaignLanding, chance: Random) -> Answer | None:
    if not landing.sinks_turn:
        return NOTHING
    with landing.another_engine() as catalog:
        land_by_sink(catalog, landing.logs, landing.topic)
    return None


def _is_known(landing: CampaignLanding) -> bool:
    """Return True if the landing has taken over from the sink."""
    with landing.another_engine() as catalog:
        state = read_ledger(catalog.load_table(ROWS).metadata, "main")
    return any(s.sink is not None for s in state.known_sections)


def _rescue(landing: CampaignLanding, chance: Random) -> Answer:
    return landing.run(*RESCUE) if _is_known(landing) else NOTHING


def _announces(landing: CampaignLanding, chance: Random) -> Answer | None:
    """The sink reads some partitions, and is stopped before it commits: in its turn, or started again by mistake."""
    if not _is_known(landing):
        return NOTHING
    some = [p for p in range(landing.partitions) if chance.random() < 0.7]
    with landing.another_engine() as catalog:
        land_by_sink(catalog, landing.logs, landing.topic, partitions=some, commits=False)
    return None


def _set_change(landing: CampaignLanding, chance: Random) -> Answer | None:
    """A topic joins the set, or leaves it."""
    topics = landing.spec["topics"]
    if len(topics) > 1 and chance.random() < 0.4:
        topics.remove(chance.choice(topics))
        landing.choose(chance)
        return None
    left = [t for t in TOPICS if t not in topics]
    if not left:
        return NOTHING
    topics.append(left[0])
    landing.topic = left[0]
    if left[0] not in landing.logs.topics:
        landing.cluster.create(left[0], chance.randint(1, 2))
    landing.produce(chance)
    return None


def _ancestry(table: Any) -> list[Any]:
    found, at = [], table.current_snapshot()
    while at is not None:
        found.append(at)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return found


def _expire(landing: CampaignLanding, chance: Random) -> Answer:
    keep = str(chance.choice((1, 3)))
    return landing.run("maintain", "SPEC", "--only", "expire", "--older-than", "0s", "--keep", keep, "--yes")


def _sweep(landing: CampaignLanding, chance: Random) -> Answer:
    """What a request on its way refers to is unneeded by then, as no sweep of a real table is so hasty."""
    landing.held.clear()
    return landing.run("maintain", "SPEC", "--only", "sweep", "--older-than", "0s", "--yes")


LANDS, DECIDES, KEEPS, SOURCE, FOREIGN = Nature.LANDS, Nature.DECIDES, Nature.KEEPS, Nature.SOURCE, Nature.FOREIGN
_EARLIEST = ("reset", "offsets", "SPEC", "--from", "earliest", "--yes")
_LATEST = ("reset", "offsets", "SPEC", "--from", "latest", "--yes")
_FOLLOW = ("land", "SPEC", "--follow-for", "0.3", "--window-age", "0.001")

OPERATIONS: Mapping[str, Operation] = {
    "land": Operation(nature=LANDS, act=_run("land", "SPEC"), weight=6),
    "follow": Operation(nature=LANDS, act=_run(*_FOLLOW), weight=1),
    "backfill": Operation(nature=LANDS, act=_ranged("backfill")),
    "backfill-some": Operation(nature=LANDS, act=_ranged("backfill", *SOME)),
    "replay": Operation(nature=DECIDES, act=_ranged("backfill", "--replace", "--yes")),
    "replay-some": Operation(nature=DECIDES, act=_ranged("backfill", "--replace", "--yes", *SOME), shapes=APPENDS),
    "lane-finish": Operation(nature=DECIDES, act=_lane),
    "lane-close": Operation(nature=LANDS, act=_close, weight=1),
    "reset-earliest": Operation(nature=DECIDES, act=_run(*_EARLIEST)),
    "reset-latest": Operation(nature=DECIDES, act=_run(*_LATEST)),
    "reset-fill": Operation(nature=DECIDES, act=_fill),
    "reset-offsets": Operation(nature=DECIDES, act=_reset_to()),
    "reset-delete": Operation(nature=DECIDES, act=_reset_to("--delete"), shapes=APPENDS),
    "reset-hard": Operation(nature=DECIDES, act=_run("reset", "hard", "SPEC", "--yes"), weight=1),
    "reset-blocked": Operation(nature=LANDS, act=_blocked, weight=1),
    "dead-letters": Operation(nature=LANDS, act=_run("dead-letters", "SPEC", "--replay"), revives=True),
    "rule": Operation(nature=SOURCE, act=_rule, shapes=APPENDS),
    "evolve": Operation(nature=KEEPS, act=_run("maintain", "SPEC", "--only", "columns", "--yes"), weight=1),
    "sweep": Operation(nature=KEEPS, act=_sweep),
    "expire": Operation(nature=KEEPS, act=_expire),
    "compact": Operation(nature=KEEPS, act=_run("maintain", "SPEC", "--only", "compact", "--yes"), weight=3),
    "adopt": Operation(nature=DECIDES, act=_adopt, real=False, shapes=SINK),
    "hand-back": Operation(nature=LANDS, act=_hand_back, real=False, shapes=SINK),
    "sink": Operation(nature=LANDS, act=_sink, real=False, shapes=SINK),
    "sink-announces": Operation(nature=KEEPS, act=_announces, real=False, shapes=SINK),
    "rescue": Operation(nature=LANDS, act=_rescue, real=False, shapes=SINK),
    "set-change": Operation(nature=SOURCE, act=_set_change, weight=3, real=False, shapes=SET),
    "topic-anew": Operation(nature=SOURCE, act=_anew),
    "retention": Operation(nature=SOURCE, act=_retention),
    "truncation": Operation(nature=SOURCE, act=_truncation, real=False),
    "partitions": Operation(nature=SOURCE, act=_grown, weight=1),
    "compaction": Operation(nature=FOREIGN, act=_compaction),
    "rollback": Operation(nature=FOREIGN, act=_rollback),
    "land-some": Operation(nature=LANDS, act=_run("land", "SPEC", "--cycles", "1"), weight=4, shapes=UPSERTS),
    "again": Operation(nature=DECIDES, act=_reset_to("--again"), weight=3, shapes=UPSERTS),
    "kill": Operation(nature=LANDS, act=kill, weight=5, real=False, shapes=DYING),
    "hold": Operation(nature=LANDS, act=hold_back, weight=2, real=False, shapes=DYING),
    "arrive": Operation(nature=LANDS, act=let_arrive, weight=2, real=False, shapes=DYING),
    "race": Operation(nature=LANDS, act=while_committing(_compaction), weight=3, real=False, shapes=DYING),
}


def operations_of(shape: str, *, real: bool = False) -> dict[str, Operation]:
    """Those of a shape, or as many of them as can be done on real brokers."""
    return {kind: o for kind, o in OPERATIONS.items() if shape in o.shapes and (o.real or not real)}
