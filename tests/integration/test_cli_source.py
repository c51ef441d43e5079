# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify --source` as a process, with a real Spark job: its report, exit code and scratch files."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.landing import load_spec
from airflow_provider_lakecommit.operations import sweep
from tests.integration.test_cli_land import land, new_landing, table_of, topic_of
from tests.support.cli import COMMAND, LAND_SECONDS, orders, run

__all__ = ["new_landing"]

pytestmark = [pytest.mark.integration, pytest.mark.heavy]

Make = Callable[..., tuple[Path, Any]]


def verify(spec: Path, *more: str) -> Any:
    return run("verify", str(spec), "--source", "--json", *more, timeout=LAND_SECONDS)


def files(spec: Path) -> set[Path]:
    return set((spec.parent / "warehouse").rglob("*.parquet"))


def test_a_table_is_compared_with_its_source(new_landing: Make) -> None:
    spec, sender = new_landing(2, slice_records=300, metadata_columns=True)
    for partition in range(2):
        sender.produce(topic_of(spec), orders(2000)[partition::2], partition)
    sender.produce(topic_of(spec), [b"no json"], 1)
    assert land(spec).code == 0
    before = files(spec)
    answer = verify(spec)
    assert answer.code == 0, answer.out + answer.err
    source = json.loads(answer.out)["source"]
    assert (source["records"], [t["rows"] for t in source["tables"]]) == (2001, [2000, 1])
    assert "reads at most 2,001 records" in answer.err
    assert "compared 2,001 of 2,001 offsets" in answer.err
    sampled = verify(spec, "--sample", "1%")
    assert sampled.code == 0
    assert json.loads(sampled.out)["source"]["records"] == 20
    assert files(spec) == before

    table = table_of(spec)
    table.delete("id = 3")
    answer = verify(spec, "--sample", f"{topic_of(spec)}:0=0-100", "--sample", f"{topic_of(spec)}:1=0-100")
    assert answer.code != 0
    values = json.loads(answer.out)
    assert values["ok"] is False
    (data, _) = values["source"]["tables"]
    assert (data["lost"], data["altered"], data["doubled"]) == (1, 0, 0)
    assert [(e["kind"], e["topic"]) for e in data["examples"]] == [("lost", topic_of(spec))]
    assert verify(spec, "--sample", "half").code != 0


def interrupted(spec: Path, number: signal.Signals) -> set[Path]:
    """Signal a proof once it has written a scratch file; return the files that are there after its end."""
    before = files(spec)
    process = subprocess.Popen([*COMMAND, "verify", str(spec), "--source"], stderr=subprocess.DEVNULL)
    until = time.monotonic() + LAND_SECONDS
    while files(spec) == before and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(LAND_SECONDS) != 0
    # The tasks of a killed command end after it.
    observed: list[set[Path]] = []
    while len(observed) < 2 or observed[-1] != observed[-2]:
        observed.append(files(spec))
        time.sleep(2)
    return observed[-1] - before


@pytest.fixture
def spec(new_landing: Make) -> Path:
    made, sender = new_landing(1, slice_records=500, metadata_columns=True)
    sender.produce(topic_of(made), orders(20_000), 0)
    assert land(made).code == 0
    return made


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_an_interrupted_proof_leaves_the_sweep_removes(spec: Path, number: signal.Signals) -> None:
    left = interrupted(spec, number)
    # A stop leaves at most the files of the two tasks that were under way.
    assert left if number is signal.SIGKILL else len(left) <= 2
    values = load_spec(spec)
    with LandingSession.connect(values.landing, values.kafka, values.catalog, log=print) as session:
        swept = sweep(session, older_than=timedelta(0), remove=True)
    assert [t.error for t in swept] == ["", ""]
    assert not left & files(spec)
    assert verify(spec).code == 0
