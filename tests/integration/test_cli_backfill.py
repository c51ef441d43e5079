# SPDX-License-Identifier: Apache-2.0
"""`lakecommit backfill` as a process: what its dry run says is what it does, killed or not."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.kafka import Sender
from tests.support.cli import COMMAND, LAND_SECONDS, Answer, landed_orders, orders, run
from tests.support.waiting import PATIENCE, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

Produced = tuple[Path, str, Sender]


@pytest.fixture
def late(bootstrap: str, tmp_path: Path) -> Produced:
    """A landing that began at the end of 2,000 orders in two partitions."""
    return landed_orders(bootstrap, tmp_path, start="latest")


def backfill(spec: Path, *more: str) -> Answer:
    return run("backfill", str(spec), *more, timeout=LAND_SECONDS)


def rows(spec: Path) -> list[int]:
    from pyiceberg.catalog import load_catalog

    values = json.loads(spec.read_text())
    found = load_catalog(**values["catalog"]).load_table(values["table"]).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def processes_of(session: int) -> list[int]:
    """Those that a command has begun and that live on without it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its = stat.read_text().rpartition(")")[2].split()[:4]
            found += [int(stat.parent.name)] if int(its) == session and state != "Z" else []
    return found


def ids(*parts: range) -> list[int]:
    return sorted(i for part in parts for i in part)


@pytest.mark.heavy
def test_what_a_dry_run_reports_is_what_is_landed_and_it_is_landed_once(late: Produced) -> None:
    spec, topic, sender = late
    sender.produce(topic, orders(2200)[2000::2], 0)
    ranges = ["--range", f"{topic}:0=100-600", "--range", f"{topic}:1=900-1000"]
    preview = backfill(spec, *ranges, "--dry-run", "--json").value
    assert preview["offsets"] == 600
    assert run("backfill", str(spec), "--list", "--json").value["lanes"] == []
    assert rows(spec) == []
    answer = backfill(spec, *ranges, "--json")
    assert answer.code == 0, answer.err
    assert sum(line["counts"]["landed"] for line in answer.lines) == preview["offsets"]
    # Record n of partition p is order 2 n + p; what came since is the live stream's.
    expected = ids(range(200, 1200, 2), range(1801, 2001, 2))
    assert rows(spec) == expected
    assert backfill(spec, *ranges).code == 0
    assert run("land", str(spec), "--json", timeout=LAND_SECONDS).code == 0
    assert rows(spec) == ids(expected, range(2000, 2200, 2))
    assert run("verify", str(spec), "--files").code == 0


def test_times_are_requested_of_the_source_and_resolved(late: Produced) -> None:
    spec, topic, _ = late
    preview = backfill(spec, "--since", "2020-01-01", "--dry-run", "--json").value
    assert preview["range"] == {f"{topic}[0]": [0, 1000], f"{topic}[1]": [0, 1000]}
    nothing = backfill(spec, "--until", "2020-01-01")
    assert nothing.code == 0
    assert "nothing to do" in nothing.err
    for wrong in (["--since", "yesterday"], ["--since", "2020-01-02", "--until", "2020-01-01"], []):
        assert backfill(spec, *wrong).code == 2
    assert backfill(spec, "--range", f"{topic}:0=5-10", "--range", f"{topic}:0=20-30").code == 2


@pytest.mark.heavy
def test_one_that_yields_waits_for_the_live_stream(late: Produced) -> None:
    spec, topic, sender = late
    assert run("land", str(spec), "--json", timeout=LAND_SECONDS).code == 0
    sender.produce(topic, orders(2200)[2000::2], 0)
    words = ["backfill", str(spec), "--range", f"{topic}:0=100-600", "--yield-to-live", "1s"]
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as command:
        assert command.stderr is not None
        warning = next(line for line in command.stderr if "is older than" in line)
        assert f"{topic}[0] [1000, 1100)" in warning
        assert rows(spec) == []
        assert run("land", str(spec), "--json", timeout=LAND_SECONDS).code == 0
        command.stderr.read()
    assert command.returncode == 0
    assert rows(spec) == ids(range(200, 1200, 2), range(2000, 2200, 2))
    assert run("verify", str(spec)).code == 0


@pytest.mark.heavy
def test_one_that_is_killed_continues_with_the_same_command(late: Produced) -> None:
    spec, _, _ = late
    command = subprocess.Popen(
        [*COMMAND, "backfill", str(spec), "--until", "2100-01-01", "--cycles", "4", "--max-records", "500"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: rows(spec), PATIENCE)
    command.send_signal(signal.SIGKILL)
    command.wait()
    # Its Spark goes by itself, and may report until then.
    until(lambda: not processes_of(command.pid), PATIENCE)
    (open_lane,) = run("backfill", str(spec), "--list", "--json").value["lanes"]
    assert open_lane["offsets"] == 2000
    assert backfill(spec, "--until", "2100-01-01").code == 0
    assert rows(spec) == ids(range(2000))
    assert run("backfill", str(spec), "--list", "--json").value["lanes"] == []
    assert run("verify", str(spec), "--files").code == 0


@pytest.mark.heavy
def test_a_stream_is_given_up_only_with_a_decision(late: Produced, tmp_path: Path) -> None:
    spec, topic, _ = late
    one = backfill(spec, "--range", f"{topic}:0=0-600", "--name", "past", "--cycles", "1", "--max-records", "250")
    assert one.code == 0, one.err
    assert "stays open" in one.err
    assert len(rows(spec)) == 250
    refused = run("backfill", str(spec), "--close", "past")
    assert refused.code == 3
    assert "GIVES UP" in refused.out
    assert run("backfill", str(spec), "--close", "paste").code == 1
    assert run("backfill", str(spec), "--close", "past", "--yes", "--reason", "enough").code == 0
    assert run("backfill", str(spec), "--list", "--json").value["lanes"] == []
    assert "enough" in run("history", str(spec)).out
    # What it has given up can be landed by another one.
    assert backfill(spec, "--range", f"{topic}:0=0-600").code == 0
    assert rows(spec) == ids(range(0, 1200, 2))
    assert run("verify", str(spec), "--files").code == 0
