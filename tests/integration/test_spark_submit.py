# SPDX-License-Identifier: Apache-2.0
"""A real spark-submit through the provider's hook: how a job that cannot finish ends, and how one is stopped.

The brokers of these jobs do not exist, so a slice waits for them: long enough to be stopped, and then it is to be done
again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Plan, Slice, Span, TableTarget
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.signing import KEY
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from dev.servers.server import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.integration

DEADLINE = 600.0


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return tmp_path


class Output:
    """What was logged, as it grows."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    @property
    def text(self) -> str:
        self._text += self._capsys.readouterr().out
        return self._text


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    """The log of the test so far."""
    return Output(capsys)


def hopeless_job() -> WindowJob:
    partition = SourcePartition(topic="orders", topic_id="id", partition=0)
    spans, tables, window = (Span(partition, OffsetRange(0, 5)),), ("shop.orders",), uuid4()
    share = Slice(slice_id=slice_id(window, spans, tables), group=0, spans=spans, tables=tables)
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    target = TableTarget(
        table="shop.orders",
        uuid=uuid4(),
        location="file:///nowhere",
        schema=json.dumps(schema),
        schema_id=0,
        spec=json.dumps({"spec-id": 0, "fields": []}),
        spec_id=0,
        properties={},
        format_version=2,
        epoch=uuid4(),
    )
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="1",
        window_id=window,
        slices=(share,),
        targets=(target,),
        ends={partition: 5},
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return WindowJob(
        landing=Landing(name="orders", topics="orders", table="shop.orders"),
        plan=plan,
        group=0,
        numbers=(0,),
        commit_id=uuid4(),
        slot=0,
        catalog="lake",
        control_topic="control-lakecommit",
        control_partition=0,
    )


def secrets() -> Secrets:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "jane"}
    secret = {"sasl.password": "canary-8c1f", KEY: "canary-8c1f" * 3}
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}", **login, **secret}
    return Secrets(kafka=kafka, io={})


@pytest.mark.heavy
def test_a_job_whose_slice_is_to_be_done_again_ends_with_an_error_that_names_it(scratch: Path, output: Output) -> None:
    with pytest.raises(SparkJobError, match=r"0, orders\[0\].*LC5315"):
        SparkSubmit("spark_default", grace=timedelta(seconds=5)).run(hopeless_job(), secrets())
    assert "slice orders[0][0, 5): again (ControlTopicError" in output.text
    assert "1 slices: 1 again; 0 records read, 0 rows written" in output.text
    assert "canary-8c1f" not in output.text
    assert not list(scratch.glob("lakecommit-*"))


@pytest.mark.heavy
def test_a_job_that_is_instructed_to_stop_ends_at_once_and_leaves_nothing(scratch: Path, output: Output) -> None:
    submit = SparkSubmit("spark_default", grace=timedelta(seconds=DEADLINE))
    ended: list[BaseException] = []

    def run() -> None:
        try:
            submit.run(hopeless_job(), secrets())
        except SparkJobError as e:
            ended.append(e)

    worker = threading.Thread(target=run)
    worker.start()
    until(lambda: "Running Spark version" in output.text, DEADLINE)
    [running] = submit._running
    process = running.process
    assert process is not None
    began = time.monotonic()
    submit.stop()
    worker.join(2 * DEADLINE)
    assert not worker.is_alive()
    assert ended
    assert process.poll() is not None
    assert time.monotonic() - began < DEADLINE, "the grace period was waited for, though the job ended by itself"
    assert not list(scratch.glob("lakecommit-*"))


OF_A_SPEC = """
from pathlib import Path

from airflow_provider_lakecommit.spark.launch.local import LocalSpark, SparkSection

conf = {"spark.hadoop.fs.azure.account.key.lake": "canary-8c1f ö=", "spark.executor.memory": "600m"}
engine = LocalSpark(SparkSection({"master": "local[1]", "conf": conf}), log=print, on_start=lambda: None)
engine.start()
known = engine._session.sparkContext
print("reached", known.getConf().get("spark.executor.memory"))
print("reached", known._jsc.hadoopConfiguration().get("fs.azure.account.key.lake") == "canary-8c1f ö=")
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if b"canary-8c1f" in path.read_bytes():
            print("shown", path)
    except OSError:
        pass
engine.close()
"""


@pytest.mark.campaign
def test_secret_settings_of_a_spec_reach_spark_and_no_argument_of_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OF_A_SPEC)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=300)
    assert [line for line in done.stdout.splitlines() if line.startswith(("reached", "shown"))] == [
        "reached 600m",
        "reached True",
    ]
    assert "canary" not in done.stdout + done.stderr
