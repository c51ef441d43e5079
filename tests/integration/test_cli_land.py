# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` as a process: what it lands, what it says, and what is left when it, or a part of it, is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from dev.servers.connect import ConnectServer
from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import COMMAND, LAND_SECONDS, Answer, Running, orders, run, write_spec

pytestmark = [pytest.mark.integration, pytest.mark.long]

SLICE = 250
ORDERS = 5_000
REJECTED = [b"no json", b'{"id": "x"}']


def land(spec: Path, *more: str) -> Answer:
    return run("land", str(spec), "--json", *more, timeout=LAND_SECONDS)


def table_of(spec: Path, suffix: str = "") -> Table:
    values = json.loads(spec.read_text())
    return load_catalog(**values["catalog"]).load_table(values["table"] + suffix)


def rows_of(spec: Path) -> list[tuple[int, Decimal]]:
    found = table_of(spec).scan().to_arrow()
    return sorted(zip(found.column("id").to_pylist(), found.column("amount").to_pylist(), strict=True))


def expected(count: int) -> list[tuple[int, Decimal]]:
    return [(o["id"], Decimal(o["amount"])) for o in orders(count)]


@pytest.fixture(scope="session")
def new_landing(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Sender]]:
    """`new_landing(partitions, **spec) -> spec file, sender`, with a catalog and topics of its own."""

    def make(partitions: int, **more: object) -> tuple[Path, Sender]:
        folder, topic = tmp_path_factory.mktemp("cli"), f"orders-{uuid4().hex[:8]}"
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, partitions)
        catalog = {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        spec = write_spec(folder, "orders", topic, f"{topic}-control", bootstrap, catalog, **more)
        return spec, Sender(bootstrap)

    return make


def topic_of(spec: Path) -> str:
    topic: str = json.loads(spec.read_text())["topics"]
    return topic


@pytest.fixture(scope="module")
def landed(new_landing: Callable[..., tuple[Path, Sender]]) -> tuple[Path, Answer]:
    """2,000 orders in three partitions, two records that are none and a tombstone, landed."""
    spec, sender = new_landing(3, slice_records=SLICE, groups=2)
    for partition in range(3):
        sender.produce(topic_of(spec), orders(2000)[partition::3], partition)
    sender.produce(topic_of(spec), [*REJECTED, None], 1)
    return spec, land(spec)


def test_a_run_lands_all_there_is(landed: tuple[Path, Answer]) -> None:
    spec, answer = landed
    assert answer.code == 0, answer.err
    assert rows_of(spec) == expected(2000)


def test_standard_output_is_one_json_line_per_cycle(landed: tuple[Path, Answer]) -> None:
    _, answer = landed
    line = answer.value
    assert line["counts"] == {"landed": 2000, "rejected": 2, "filtered": 1, "gaps": 0, "skipped": 0}
    assert [p["rows"] for p in line["published"]] == [2000, 2]
    assert sum(end - start for ranges in line["offsets"].values() for start, end in ranges) == 2003
    assert line["slices"] == {"done": line["window"]["slices"]}
    assert (line["left"], line["missing"], line["blocked"], line["waiting"]) == (0, [], [], [])
    assert line["valid_through"] is not None
    assert line["seconds"].keys() == {"open", "spark", "write", "close"}


def test_dead_letters_are_there_once_with_position_and_reason(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    found = table_of(spec, "_dead").scan().to_arrow().to_pylist()
    assert sorted(row["value"] for row in found) == sorted(REJECTED)
    assert {(row["topic"], row["partition"]) for row in found} == {(topic_of(spec), 1)}
    assert all(row["reason"] for row in found)


def test_another_run_lands_nothing(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    before = table_of(spec).metadata.current_snapshot_id
    answer = land(spec)
    assert answer.code == 0
    assert (answer.value["rows"], answer.value["reason"]) == (0, "nothing new")
    assert table_of(spec).metadata.current_snapshot_id == before
    assert "spark" not in answer.value["seconds"]


@pytest.mark.heavy
def test_on_a_terminal_one_line_lives_and_nothing_writes_into_it(
    new_landing: Callable[..., tuple[Path, Sender]],
) -> None:
    spec, sender = new_landing(2, slice_records=SLICE)
    sender.produce(topic_of(spec), orders(2000), 0)
    terminal, end = os.openpty()
    command = subprocess.Popen([*COMMAND, "land", str(spec)], stdin=end, stdout=end, stderr=end, close_fds=True)
    os.close(end)
    output = b""
    # The kernel's word for a terminal that nobody has open any more.
    with suppress(OSError):
        while more := os.read(terminal, 4096):
            output += more
    os.close(terminal)
    assert command.wait(LAND_SECONDS) == 0, output
    text = output.decode()
    assert "0/8 slices" in text
    assert "done in" not in text
    torn = [line for line in text.split("\r\n") if {*"░█"} & {*line.rpartition("\r")[2]}]
    assert not torn, "a line that lived was left behind"
    assert '{"landing"' not in text
    assert rows_of(spec) == expected(2000)


def test_plan_and_status_report_that_nothing_is_left(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    plan = run("plan", str(spec), "--explain", "--json").value
    assert (plan["records"], plan["slices"], plan["reason"]) == (0, [], "nothing new")
    assert len(plan["explain"]) == 3
    answer = run("status", str(spec), "--json", "--max-age", "1h")
    status = answer.value
    assert (answer.code, status["standing"], status["why"]) == (0, "well", None)
    assert status["lag"] == 0
    assert status["cycles"] == []
    assert {t["condition"] for t in status["tables"]} == {"present"}
    assert status["valid_through"] is not None


def test_verify_agrees(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    answer = run("verify", str(spec), "--json")
    assert answer.code == 0, answer.out
    data, dead = answer.value["tables"]
    assert (data["offsets"], data["rows"], data["counts"]["rejected"]) == (2003, 2000, 2)
    assert dead["rows"] == 2


def test_the_control_log_reports_the_cycle(landed: tuple[Path, Answer]) -> None:
    spec, answer = landed
    previewed = run("history", str(spec), "--control-topic", "--group", "lakecommit-orders", "--json").lines
    first = answer.value["commit_id"]
    kinds = [r["event"]["type"] for r in previewed if r["event"]["commit_id"] == first]
    assert kinds[0] == "START_COMMIT"
    assert kinds[-3:] == ["COMMIT_TO_TABLE", "COMMIT_TO_TABLE", "COMMIT_COMPLETE"]
    assert kinds.count("DATA_COMPLETE") == answer.value["window"]["slices"]


def test_ledger_show_has_the_ends(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    data = run("history", str(spec), "--ledger", "--json").lines[0]
    (section,) = data["sections"]
    assert sum(end - start for ranges in section["covered"].values() for start, end in ranges) == 2003


def a_file(spec: Path) -> Path:
    paths = sorted(table_of(spec).inspect.files().column("file_path").to_pylist())
    return Path(urlsplit(paths[0]).path)


@pytest.fixture
def corrupted_file(landed: tuple[Path, Answer]) -> Iterator[Path]:
    """A data file that a test may corrupt."""
    path = a_file(landed[0])
    content = path.read_bytes()
    yield path
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("corrupt", "message"), [(Path.unlink, "is missing"), (lambda p: p.write_bytes(b"PAR1"), "4 bytes")]
)
def test_verify_names_a_file_that_is_missing_or_cut(
    corrupt: Callable[[Path], object], message: str, corrupted_file: Path, landed: tuple[Path, Answer]
) -> None:
    corrupt(corrupted_file)
    answer = run("verify", str(landed[0]), "--json")
    assert answer.code == 1
    (found,) = answer.value["findings"]
    assert str(corrupted_file) in found["text"]
    assert message in found["text"]
    assert run("verify", str(landed[0]), "--no-files").code == 0


def test_commits_of_others_are_notes_and_no_fault(landed: tuple[Path, Answer]) -> None:
    spec, _ = landed
    table = table_of(spec)
    table.append(table.scan(limit=1).to_arrow())
    answer = run("verify", str(spec), "--json")
    assert answer.code == 0, answer.out
    assert [(f["level"], f["snapshot_id"]) for f in answer.value["findings"]] == [
        ("note", table.metadata.current_snapshot_id)
    ]


@pytest.mark.heavy
def test_a_spark_connect_server_lands_the_same(
    new_landing: Callable[..., tuple[Path, Sender]], connect_server: ConnectServer
) -> None:
    spec, sender = new_landing(2, slice_records=SLICE, groups=2, spark={"remote": connect_server.url})
    for partition in range(2):
        sender.produce(topic_of(spec), orders(1000)[partition::2], partition)
    answer = land(spec)
    assert answer.code == 0, answer.err
    assert answer.value["slices"] == {"done": 4}, "what the server told, in one cycle"
    assert rows_of(spec) == expected(1000)
    assert "spark" not in land(spec).value["seconds"]


WITHOUT_SPARK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"pyspark", "py4j", "pandas", "duckdb", "airflow.providers.apache.spark"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from airflow_provider_lakecommit.cli.main import main
sys.exit(main())
"""
"""Runs a command as on a machine that lacks these packages."""


@pytest.mark.heavy
@pytest.mark.parametrize(
    "arguments", [("land",), ("verify", "--rows"), ("verify", "--source"), ("status",)], ids=" ".join
)
def test_with_a_spark_connect_server_a_machine_needs_no_spark(
    new_landing: Callable[..., tuple[Path, Sender]], connect_server: ConnectServer, arguments: tuple[str, ...]
) -> None:
    spec, sender = new_landing(1, spark={"remote": connect_server.url})
    sender.produce(topic_of(spec), orders(300), 0)
    for command in (("land",), arguments):
        words = [sys.executable, "-c", WITHOUT_SPARK, command[0], str(spec), *command[1:]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LAND_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
    assert rows_of(spec) == expected(300)


@pytest.mark.heavy
def test_cycles_limits_a_run_and_reports_what_is_left(new_landing: Callable[..., tuple[Path, Sender]]) -> None:
    spec, sender = new_landing(1, max_records=400, slice_records=200)
    sender.produce(topic_of(spec), orders(1000), 0)
    answer = land(spec, "--cycles", "2")
    assert answer.code == 0, answer.err
    assert [line["left"] for line in answer.lines] == [600, 200]
    assert sum(line["rows"] for line in answer.lines) == 800, "in which of them depends on how far the window ahead is"
    assert "200 offsets are left" in answer.err
    assert rows_of(spec) == expected(800)


@pytest.fixture
def running(new_landing: Callable[..., tuple[Path, Sender]]) -> Iterator[tuple[Path, Running]]:
    """A landing of many orders in 20 slices, some of which are done."""
    spec, sender = new_landing(2, slice_records=SLICE, groups=2)
    for partition in range(2):
        sender.produce(topic_of(spec), orders(ORDERS)[partition::2], partition)
    process = Running.land(spec)
    process.wait_for(": done in", times=3)
    yield spec, process
    process.close()


def check_nothing_lost_or_doubled(spec: Path) -> None:
    assert rows_of(spec) == expected(ORDERS)
    verified = run("verify", str(spec), "--json")
    assert verified.code == 0, verified.out
    assert verified.value["tables"][0]["offsets"] == ORDERS


def test_after_a_kill_the_next_run_goes_on_at_once_from_what_was_reported(running: tuple[Path, Running]) -> None:
    spec, process = running
    process.kill()
    assert process.end().code == -signal.SIGKILL
    answer = land(spec)
    assert answer.code == 0, answer.err
    assert "belongs to a run that has ended" in answer.err
    read = sum(line["window"]["slices"] for line in answer.lines)
    assert read <= ORDERS // SLICE - 3, "three were done before the kill; until Java has noticed it, more may have been"
    check_nothing_lost_or_doubled(spec)


@pytest.mark.heavy
def test_a_run_that_is_instructed_to_stop_publishes_what_is_read_and_reports_what_is_not(
    running: tuple[Path, Running],
) -> None:
    spec, process = running
    process.kill(signal.SIGTERM)
    answer = process.end()
    assert answer.code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM: publishing what is read" in answer.err
    assert "the records read so far are published, the next run reads" in answer.err
    assert "Traceback" not in answer.err
    assert 3 * SLICE <= table_of(spec).scan().to_arrow().num_rows < ORDERS
    assert land(spec).code == 0
    check_nothing_lost_or_doubled(spec)


MANY = 2_400_000
"""Orders that a task of this machine needs seconds for: a shorter slice ends before it looks whether it is requested
to.
"""


def ids_of(spec: Path) -> list[int]:
    return sorted(table_of(spec).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


@pytest.mark.heavy
def test_a_run_goes_on_after_a_user_requested_its_window_published_now(
    new_landing: Callable[..., tuple[Path, Sender]],
) -> None:
    spec, sender = new_landing(1, slice_records=MANY)
    sender.produce(topic_of(spec), orders(MANY), 0)
    process = Running.land(spec)
    process.wait_for("offsets in")
    # So that the word is there before the slice is begun, however fast that is.
    process.kill(signal.SIGSTOP)
    now = run("publish-now", str(spec), "--json", "--wait", "1s", "--reason", "the month ends")
    process.kill(signal.SIGCONT)
    assert now.code == 0, now.err
    assert (len(now.value["asked"]), now.value["closed"], now.value["published"]) == (1, [], [])
    answer = process.end()
    process.close()
    assert answer.code == 0, answer.err
    first, *rest = (line["rows"] for line in answer.lines)
    assert 0 < first < MANY, "the slice ended in its middle"
    assert first + sum(rest) == MANY
    assert ids_of(spec) == list(range(MANY))


@pytest.mark.heavy
def test_runs_that_are_instructed_to_stop_at_any_moment_lose_and_double_nothing(
    new_landing: Callable[..., tuple[Path, Sender]],
) -> None:
    spec, sender = new_landing(2, slice_records=MANY, groups=2)
    for partition in range(2):
        sender.produce(topic_of(spec), orders(MANY)[partition::2], partition)
    chance, landed, stops = random.Random(20261123), 0, 0
    while landed < MANY:
        process = Running.land(spec)
        process.wait_for("records read")
        time.sleep(chance.uniform(0.0, 2.0))
        process.kill(signal.SIGTERM)
        answer = process.end()
        process.close()
        # After its end, the process may be there for a moment that no handler answers.
        assert answer.code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), answer.err
        assert "Traceback" not in answer.err
        now = table_of(spec).scan().count()
        assert now > landed, "what was read is kept"
        stops, landed = stops + (answer.code == 128 + signal.SIGTERM), now
    assert stops
    assert ids_of(spec) == list(range(MANY))
    assert run("verify", str(spec), "--files").code == 0


@pytest.mark.heavy
def test_a_second_signal_ends_a_run_at_once(running: tuple[Path, Running]) -> None:
    spec, process = running
    process.kill(signal.SIGTERM)
    process.wait_for("stopped by SIGTERM")
    process.kill(signal.SIGTERM)
    assert process.end().code == -signal.SIGTERM
    assert land(spec).code == 0
    check_nothing_lost_or_doubled(spec)


@pytest.mark.heavy
def test_when_java_dies_the_cycle_is_closed_and_the_next_one_reads_the_rest(running: tuple[Path, Running]) -> None:
    spec, process = running
    process.kill_children("org.apache.spark.deploy.SparkSubmit")
    answer = process.end()
    assert answer.code == 0, answer.err
    first, *others = answer.lines
    assert first["slices"]["done"] >= 3
    # What a slow slice before them holds up is finished too, and is not read again.
    assert first["rows"] + SLICE * len(first["waiting"]) >= 3 * SLICE
    assert first["missing"]
    assert others[-1]["missing"] == []
    assert "starting another one" in answer.err
    check_nothing_lost_or_doubled(spec)


@pytest.mark.heavy
def test_when_python_workers_die_their_slices_are_done_by_others(running: tuple[Path, Running]) -> None:
    spec, process = running
    process.kill_children("pyspark.daemon")
    answer = process.end()
    assert answer.code == 0, answer.err
    check_nothing_lost_or_doubled(spec)


@pytest.mark.heavy
def test_a_range_over_its_budget_is_blocked_by_name_until_a_user_states_how(
    new_landing: Callable[..., tuple[Path, Sender]],
) -> None:
    spec, sender = new_landing(2, slice_records=SLICE, dead_letter_max_records=3)
    topic = topic_of(spec)
    sender.produce(topic, orders(100), 0)
    sender.produce(topic, [b"bad"] * 5, 0)
    sender.produce(topic, [b"bad"] * 6, 1)
    answer = land(spec)
    assert answer.code == 1, answer.err
    assert "lakecommit reset blocked" in answer.err.splitlines()[-1]
    previewed = run("status", str(spec), "--json")
    assert (previewed.code, len(previewed.value["blocked"])) == (4, 2)

    refused = run("reset", "blocked", str(spec), "--skip", "--partition", f"{topic}:7", "--json")
    assert refused.code == 1
    assert refused.value["error"]["type"] == "BlockedRangeError"
    assert run("reset", "blocked", str(spec), "--skip", "--partition", f"{topic}:1", "--yes").code == 0
    assert run("reset", "blocked", str(spec), "--raise", "10", "--yes").code == 0
    answer = land(spec)
    assert answer.code == 0, answer.err
    assert rows_of(spec) == expected(100)
    assert table_of(spec, "_dead").scan().to_arrow().num_rows == 5
    status = run("status", str(spec), "--json").value
    assert (status["lag"], status["blocked"]) == (0, [])
    assert run("verify", str(spec)).code == 0
