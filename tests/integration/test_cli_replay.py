# SPDX-License-Identifier: Apache-2.0
"""`lakecommit backfill --replace` as a process: the numbers of its dry run, and a reader who reads all the while."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import Sender
from tests.support.cli import LAND_SECONDS, Answer, landed_orders, orders, run

pytestmark = [pytest.mark.integration, pytest.mark.long]

Landed = tuple[Path, str, Sender]


@pytest.fixture
def landed(bootstrap: str, tmp_path: Path) -> Landed:
    """1,000 orders in each of two partitions, all of them in the table."""
    return landed_orders(bootstrap, tmp_path, metadata_columns=True)


def replay(spec: Path, *more: str) -> Answer:
    return run("backfill", str(spec), "--replace", *more, timeout=LAND_SECONDS)


def table_of(spec: Path) -> object:
    values = json.loads(spec.read_text())
    return load_catalog(**values["catalog"]).load_table(values["table"])


def ids(spec: Path) -> Counter[int]:
    return Counter(table_of(spec).scan().to_arrow().column("id").to_pylist())  # type: ignore[attr-defined]


def files(spec: Path) -> set[str]:
    return {t.file.file_path for t in table_of(spec).scan().plan_files()}  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_what_a_dry_run_reports_is_what_is_replaced_and_readers_see_all_of_it_always(landed: Landed) -> None:
    spec, topic, sender = landed
    ranges = ["--range", f"{topic}:0=100-600", "--range", f"{topic}:1=900-1000"]
    before = files(spec)
    preview = replay(spec, *ranges, "--dry-run", "--json").value
    (rows,) = (table for name, table in preview["tables"].items() if name == json.loads(spec.read_text())["table"])
    assert (preview["offsets"], rows["rows"], rows["expected_rows"]) == (600, 600, 600)
    assert files(spec) == before
    unconfirmed = replay(spec, *ranges)
    assert unconfirmed.code == 3
    assert "REPLACES" in unconfirmed.out
    assert run("backfill", str(spec), "--list", "--json").value["lanes"] == []
    sender.produce(topic, orders(2200)[2000::2], 0)
    observed, done = list[Counter[int]](), threading.Event()

    def read() -> None:
        while not done.is_set():
            observed.append(ids(spec))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        answer = replay(spec, *ranges, "--yes", "--reason", "once more", "--json")
    finally:
        done.set()
        reader.join()
    assert answer.code == 0, answer.err
    everything = Counter(range(2000))
    assert observed
    assert all(one == everything for one in observed), "neither both nor neither"
    assert ids(spec) == everything
    assert len(before - files(spec)) == rows["dropped_files"] + rows["rewritten_files"]
    assert "once more" in run("history", str(spec)).out
    assert run("backfill", str(spec), "--list", "--json").value["lanes"] == []
    assert run("land", str(spec), "--json", timeout=LAND_SECONDS).code == 0
    assert ids(spec) == everything + Counter(range(2000, 2200, 2))
    assert run("verify", str(spec), "--files").code == 0
    assert replay(spec, "--range", f"{topic}:0=0-2000", "--yes").code == 1
