# SPDX-License-Identifier: Apache-2.0
"""The last step of the demo: the snapshots with their offsets, the records of one cycle, the verdict of `verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import UUID

import yaml

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry, SliceReported, TablePublished
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord
from dev.demo.context import Demo
from dev.demo.evidence import stories
from dev.demo.screen import number

VERIFY_SECONDS = 120.0
PARTITIONS_SHOWN = 3


def tell_the_story(demo: Demo) -> None:
    """What the table and the control topic say of all this."""
    screen, landing = demo.screen, demo.landing
    runs: dict[UUID | None, str] = {c.commit_id: c.opened.cycle.run for c in stories(demo.watch.entries())}
    records = demo.lake.snapshots(landing.table)
    screen.note(f"   Snapshots of {landing.table}")
    rows = [_snapshot_row(r, runs.get(r.commit_id, "")) for r in records]
    screen.table(("snapshot", "kind", "run", "offsets", "rows", "partition:offsets"), rows)
    cycle = demo.cycle("demo-3")
    screen.note("")
    screen.note(f"   The cycle of run 3 on {landing.control_topic_name}")
    screen.table(
        ("offsets", "time", "event", "n", "what it says"), [_story_row(*row) for row in cycle.by_event().items()]
    )
    screen.note("")
    landed = sum(r.rows for r in records)
    screen.check("snapshots", f"{number(landed)} rows together", landed == sum(map(len, demo.sent)))
    screen.check("the story", f"{len(cycle.entries)} events in the protocol's order", cycle.is_in_order)
    _check_verify(demo)


def _snapshot_row(record: SnapshotRecord, run: str) -> tuple[str, ...]:
    return (
        str(record.snapshot_id),
        record.kind.value,
        run,
        number(len(record.ranges)),
        number(record.rows),
        _offsets(record.ranges),
    )


def _offsets(ranges: Coverage) -> str:
    parts = [f"{p.partition}:{r.start}-{r.end}" for p, r in sorted(ranges.items())]
    more = f" and {len(parts) - PARTITIONS_SHOWN} more" if len(parts) > PARTITIONS_SHOWN else ""
    return " ".join(parts[:PARTITIONS_SHOWN]) + more


def _story_row(name: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    first, last = entries[0], entries[-1]
    alone = first is last
    where = str(first.offset) if alone else f"{first.offset}-{last.offset}"
    when = f"{first.at:%H:%M:%S}" if alone else f"{first.at:%H:%M:%S}-{last.at:%H:%M:%S}"
    return where, when, name, str(len(entries)), _said(entries)


def _said(entries: Sequence[Entry]) -> str:
    match entries[0]:
        case CycleOpened(plan=plan):
            return f"a window of {number(sum(map(len, plan.slices)))} offsets in {len(plan.slices)} slices"
        case SliceReported():
            landed = sum(s.counts.landed for e in entries if isinstance(e, SliceReported) for s in e.report.spans)
            return f"slices finished, {number(landed)} records"
        case TablePublished():
            return "; ".join(f"{e.table} has {e.snapshot_id}" for e in entries if isinstance(e, TablePublished))
        case CycleClosed(valid_through=through):
            return f"valid through {through:%H:%M:%S} UTC" if through else "an older range is still missing"
        case _:
            return "files of the slices"


def _check_verify(demo: Demo) -> None:
    """`lakecommit verify` looks at the history of both tables."""
    stack = demo.stack
    spec = stack.directory / "flights.yaml"
    sections = {"kafka": {"bootstrap.servers": stack.broker.bootstrap}, "catalog": stack.catalog}
    # The catalog's URI may hold a password.
    with os.fdopen(os.open(spec, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump({**demo.landing.to_dict(), **sections}, file)
    code, lines = demo.lakecommit("verify", "verify", str(spec), timeout=VERIFY_SECONDS)
    demo.screen.check("lakecommit verify", lines[-1] if lines else f"exit code {code}", code == 0)
