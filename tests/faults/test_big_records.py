# SPDX-License-Identifier: Apache-2.0
"""Big records: a window is cut by their bytes before one of them has landed, and memory stays bounded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.planning import missing
from airflow_provider_lakecommit.cycle.plan.open import preview
from bench import big_records
from tests.support.declared import landing_of
from tests.support.world import SCHEMA, World, catalog_in

pytestmark = pytest.mark.faults

MOST_MB = 2000


def test_the_first_window_is_cut_by_the_bytes_of_its_records(
    tmp_path: Path,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(missing, "SLICE_BYTES", 1 << 20)
    topic = make_topic(2)
    produce(topic, [{"id": n, "name": "x" * 100_000} for n in range(40)], partition=0)
    produce(topic, [{"id": n, "name": "y"} for n in range(40, 48)], partition=1)
    landing = landing_of(name="big", topics=topic, table="shop.rows", create=SCHEMA, control_topic=control_topic)
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))

    with world.session() as session:
        planned = [span for each in preview(session).slices for span in each.spans]
    assert sorted(len(s) for s in planned if s.partition.partition == 0) == [10, 10, 10, 10]
    assert [len(s) for s in planned if s.partition.partition == 1] == [8]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("shape", "megabytes", "least"),
    # Sixty records are too few for a check their sizes, so they are one slice.
    [("text", 1000, 2), ("deep", 600, 2), ("mixed", 600, 2), ("10MB", 600, 1)],
)
def test_records_of_a_megabyte_and_more_land_in_bounded_memory(
    shape: str, megabytes: int, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert big_records.main(["--shapes", shape, "--megabytes", str(megabytes)]) == 0
    text = capsys.readouterr().out
    peak = re.search(r"peak (\d+) MB", text)
    slices = re.search(r"slices \[(\d+)", text)
    assert peak is not None
    assert slices is not None
    assert int(peak[1]) < MOST_MB, text
    assert int(slices[1]) >= least, text
