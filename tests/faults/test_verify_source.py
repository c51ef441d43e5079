# SPDX-License-Identifier: Apache-2.0
"""`verify --source`: every difference between a table and the records of its topics is found, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecommit.operations.proof.chosen import Sample
from airflow_provider_lakecommit.operations.proof.prove import Proof, source_findings
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.status.table_history import Severity
from tests.support.messes import table_of
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., Any]


@dataclass
class Tasks:
    """Runs the tasks of a job one after the other, as Spark would."""

    ahead: int = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        again, own = WindowJob.from_json(job.to_json()), Secrets.from_json(secrets.to_json())
        return [run_task(again, own, n) for n in range(len(again.plan.slices))]

    def stop(self) -> None: ...

    def close(self) -> None: ...


def files(world: World) -> set[Path]:
    return set(Path(world.catalog["warehouse"].removeprefix("file://")).rglob("*.parquet"))


def proof_of(world: World, sample: Sample | None = None) -> tuple[Proof, dict[Severity, list[str]]]:
    """Return the proof and its findings; it leaves no file behind."""
    before = files(world)
    with world.session() as session:
        proof, found = source_findings(session, sample or Sample(), Tasks(), world.lines.append)
    assert files(world) == before
    out: dict[Severity, list[str]] = {level: [] for level in Severity}
    for f in found:
        out[f.level].append(f"{f.table}: {f.text}".replace(str(world.landing.topics), "T"))
    return proof, out


def counts(world: World, table: str = "shop.rows") -> dict[str, int]:
    proof, found = proof_of(world)
    told = dict(+proof.differences[table].counts)
    assert bool(found[Severity.WRONG]) == bool(set(told) - {"undecided"})
    return told


def clean(world: World) -> Proof:
    proof, found = proof_of(world)
    assert found == {level: [] for level in Severity}
    return proof


def put(world: World, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], table: str = "shop.rows") -> None:
    """Replace all rows of a table, as another writer could."""
    there = table_of(world, table)
    rows = there.scan().to_arrow()
    there.overwrite(pa.Table.from_pylist(change(rows.to_pylist()), schema=rows.schema))


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    made = make_world(metadata_columns=True, dead_letter_max_ratio=1.0)
    produce(made.landing.topics, [*records(0, 70), "no json"], partition=0)
    produce(made.landing.topics, records(100, 30), partition=1)
    made.settle()
    return made


def test_a_table_that_equals_its_source_is_clean(world: World) -> None:
    proof = clean(world)
    assert (proof.records, proof.differences["shop.rows"].rows, proof.differences["shop.dead"].rows) == (101, 100, 1)


def test_a_lost_a_doubled_and_an_altered_row_are_found(world: World) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_id = {r["id"]: r for r in rows}
        del by_id[3]
        by_id[104]["name"] = None
        return [*by_id.values(), by_id[5]]

    put(world, change)
    assert counts(world) == {"lost": 1, "doubled": 1, "altered": 1}
    _, found = proof_of(world)
    (text,) = found[Severity.WRONG]
    assert "lost: T[0] offset 3" in text
    assert "doubled: T[0] offset 5" in text
    assert "altered: T[1] offset 4, column name: the source has 'n104', the table None" in text


def test_a_row_of_no_record_is_found(world: World) -> None:
    rows = table_of(world).scan(row_filter="id = 7").to_arrow()
    at = rows.column_names.index("kafka_offset")
    strange = rows.set_column(at, rows.schema.field(at), pa.array([70], pa.int64()))
    table_of(world).append(strange)
    assert counts(world) == {"foreign": 1}


def test_a_dead_letter_that_is_gone_is_lost(world: World) -> None:
    table_of(world, "shop.dead").delete("offset = 70")
    assert counts(world, "shop.dead") == {"lost": 1}
