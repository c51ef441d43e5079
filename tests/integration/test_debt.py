# SPDX-License-Identifier: Apache-2.0
"""The limit of a table's compaction debt, through the command line: what it defers, and what clears it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.support.cli import LAND_SECONDS, landed_orders, orders, run

pytestmark = [pytest.mark.integration, pytest.mark.long]

HUNDRED = 100


def ids_of(spec: Path) -> list[int]:
    values = json.loads(spec.read_text())
    return sorted(load_catalog(**values["catalog"]).load_table(values["table"]).scan().to_arrow()["id"].to_pylist())


def debt(spec: Path) -> dict[str, Any]:
    return run("status", str(spec), "--json").value["tables"][0]["debt"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["maintain", pytest.param("land", marks=pytest.mark.heavy)])
def test_a_debt_of_twice_its_limit_defers_the_plan_until_a_compaction(bootstrap: str, tmp_path: Path, way: str) -> None:
    """It never does where no run compacts."""
    limits = {"max_debt_files": 5, "slice_records": HUNDRED}
    spec, topic, sender = landed_orders(bootstrap, tmp_path, compact=False, **limits)
    sender.produce(topic, orders(HUNDRED, 2000), 0)
    before = debt(spec)
    assert (before["files"], before["compacted"], before["share"] > 2) == (20, False, True)
    free = run("plan", str(spec), "--explain").out
    assert "maintain.compact" in free
    assert "compaction debt" not in free

    values = json.loads(spec.read_text())
    del values["maintain"]["compact"]
    spec.write_text(json.dumps(values))
    deferred = run("plan", str(spec), "--json").value
    assert (deferred["slices"], deferred["left"]) == ([], HUNDRED)
    assert deferred["reason"].startswith("compaction debt: shop.orders has 20 data files")
    assert "lakecommit maintain SPEC --only compact --yes" in deferred["reason"]

    if way == "maintain":
        assert run("maintain", str(spec), "--only", "compact", "--yes").code == 0
        assert debt(spec)["share"] < 1
        [planned] = run("plan", str(spec), "--json").value["slices"]
        assert planned
    landed = run("land", str(spec), "--json", timeout=LAND_SECONDS)
    assert landed.code == 0, landed.err
    assert debt(spec)["share"] < 1
    assert ids_of(spec) == [*range(2000 + HUNDRED)]
    assert run("verify", str(spec)).code == 0
