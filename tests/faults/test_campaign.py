# SPDX-License-Identifier: Apache-2.0
"""Random SIGKILLs while landing, of the whole process tree and of single processes, and the count in the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_provider_lakecommit.iceberg.catalog import Tables
from tests.support.cli import COMMAND, LAND_SECONDS, run
from tests.support.declared import nested
from tests.support.world import SCHEMA, catalog_in, records

ROUNDS = 12
BATCH = 6_000


def _kill(child: subprocess.Popen[bytes], chance: random.Random) -> str:
    """The whole session, or one process of it."""
    if chance.random() < 0.5:
        os.killpg(child.pid, signal.SIGKILL)
        return "everything"
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    number = chance.randrange(len(family))
    # It may have ended meanwhile by itself.
    with suppress(psutil.NoSuchProcess):
        family[number].kill()
    return f"process {number} of {len(family)}"


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("seed", "window"), [(1, None), (2, None), (3, 1_500), (4, 1_500)])
def test_random_kills_lose_and_double_nothing(
    tmp_path: Path,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Callable[..., object],
    seed: int,
    window: int | None,
) -> None:
    chance, topic = random.Random(seed), make_topic(4)
    spec = {
        "name": f"campaign-{seed}",
        "topics": topic,
        "table": "shop.rows",
        "create": SCHEMA,
        "slice_records": 500,
        **({"max_records": window} if window else {}),
        "control_topic": control_topic,
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": catalog_in(tmp_path),
        "spark": {"master": "local[2]"},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(nested(**spec)))
    story: list[str] = []
    for turn in range(ROUNDS):
        produce(topic, records(turn * BATCH, BATCH))
        child = subprocess.Popen(
            [*COMMAND, "land", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            child.wait(chance.uniform(2, 25))
        except subprocess.TimeoutExpired:
            story.append(f"{turn}: {_kill(child, chance)}")
            child.wait(LAND_SECONDS)
    done = run("land", str(path), "--json", timeout=LAND_SECONDS)
    assert done.code == 0, (story, done.err[-3000:])
    found = Counter(
        Tables(catalog_in(tmp_path)).load("shop.rows").scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    )
    expected = Counter(range(ROUNDS * BATCH))
    assert (expected - found, found - expected) == (Counter(), Counter()), story
    assert run("verify", str(path)).code == 0, story
    assert story, "nobody was killed"
