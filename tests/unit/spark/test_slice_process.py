# SPDX-License-Identifier: Apache-2.0
"""A slice in a process of its own: what that says is taken as if it was said here, and its death is a failure."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.model import Slice, SliceReport
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    RecordsError,
    SourceCorruptError,
    SourceUnavailableError,
    SparkJobError,
)
from airflow_provider_lakecommit.spark import slice_process
from airflow_provider_lakecommit.spark.failures import passes, spans_of
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from airflow_provider_lakecommit.spark.slice_process import run_apart
from airflow_provider_lakecommit.spark.slices import SliceOutcome
from airflow_provider_lakecommit.spark.window import workers_died
from tests.fakes.lake import data_file
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job

Prints = Callable[[str], None]


@pytest.fixture
def prints(monkeypatch: pytest.MonkeyPatch) -> Prints:
    """The process runs this in place of its work."""

    def run_program(program: str) -> None:
        text = f"import os, pickle, sys; asked = sys.stdin.buffer.read1(); out = sys.stdout.buffer\n{program}"
        monkeypatch.setattr(slice_process, "COMMAND", (sys.executable, "-c", text))

    return run_program


@pytest.fixture
def run(tmp_path: Path) -> Callable[[], SliceOutcome]:
    landing = FakeLanding(tmp_path, {"slice_records": 10})
    job = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    landing.session.close()
    landing.catalog.close()
    assert job is not None
    secrets = Secrets(kafka={"bootstrap.servers": "127.0.0.1:1", "sasl.password": "canary-8c1f"}, io={})
    return lambda: run_apart(job, secrets, job.plan.slices[0], uuid4())


def test_it_gets_the_slice_and_the_whole_window_against_which_rejects_are_counted(
    prints: Prints, run: Callable[[], SliceOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[WindowJob, Secrets, Slice, UUID]] = []
    talk = slice_process._talk

    def talked(process: Any, request: bytes) -> tuple[bool, bytes]:
        given.append(pickle.loads(request))
        return talk(process, request)

    monkeypatch.setattr(slice_process, "_talk", talked)
    prints(ready(outcome()))
    run()
    ((job, secrets, part, _),) = given
    assert (len(part), sum(map(len, job.plan.slices))) == (10, 30)
    assert secrets.kafka["sasl.password"] == "canary-8c1f"


def ready(answer: object) -> str:
    return f"out.write({slice_process.READY!r} + {pickle.dumps(answer)!r}); out.flush()"


def outcome() -> SliceOutcome:
    report = SliceReport(
        slice_id=uuid4(), attempt=uuid4(), window_id=uuid4(), spec_version="1", spans=(), tables=(), bytes=30
    )
    return SliceOutcome(report=report, files={"shop.rows": [data_file("file:///a.parquet", 3)]})


def test_its_outcome_is_that_of_the_slice(prints: Prints, run: Callable[[], SliceOutcome]) -> None:
    prints(ready(outcome()))
    found = run()
    assert found.rows == {"shop.rows": 3}
    assert found.files["shop.rows"][0].record_count == 3


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by signal 9, probably because the system ran out of memory"),
        ("os.kill(os.getpid(), 11)", "was killed by signal 11"),
        ("os._exit(3)", "ended with exit code 3"),
        ("os._exit(0)", "ended with exit code 0"),
        (f"{ready('half')}; os._exit(1)", "ended with exit code 1"),
    ],
)
def test_its_death_is_a_failure_of_its_records(
    prints: Prints, run: Callable[[], SliceOutcome], end: str, message: str
) -> None:
    prints(f"out.write({slice_process.READY!r}); out.flush(); {end}")
    with pytest.raises(RecordsError, match=rf"{message}.*LC5034") as died:
        run()
    assert "orders[0][0, 10)" in str(died.value)
    assert (passes(died.value), spans_of(died.value)) == (False, ())


def test_one_that_does_not_come_to_its_work_reports_nothing_of_the_records(
    prints: Prints, run: Callable[[], SliceOutcome]
) -> None:
    prints("raise ModuleNotFoundError('pyarrow')")
    with pytest.raises(SparkJobError, match="LC5033") as raised:
        run()
    assert passes(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        RecordsError("LC9999", "boom", ("span",)),
        SourceCorruptError("LC9999", "crc", ("span",)),
        SourceUnavailableError("LC9999", "away"),
        CatalogError("LC9999", "keys"),
        SparkJobError("LC9999", "no"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_it_raises_is_raised_here(prints: Prints, run: Callable[[], SliceOutcome], error: Any) -> None:
    prints(ready(error))
    with pytest.raises(type(error)) as raised:
        run()
    assert str(raised.value) == str(error)
    assert getattr(raised.value, "spans", ()) == getattr(error, "spans", ())


@pytest.mark.parametrize(("error", "expected"), [(OSError("disk"), True), (OverflowError("date"), False)])
def test_what_others_raise_keeps_its_kind(
    prints: Prints, run: Callable[[], SliceOutcome], monkeypatch: pytest.MonkeyPatch, error: Exception, expected: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("airflow_provider_lakecommit.spark.slices.run_slice", fail)
    prints(ready(slice_process._answer(*[None] * 4)))  # type: ignore[arg-type]
    with pytest.raises(
        (SparkJobError, RecordsError), match=rf"{type(error).__name__}: {error}.*(LC5035|LC5036)"
    ) as raised:
        run()
    assert passes(raised.value) is expected


def test_nothing_secret_is_in_its_arguments_or_its_environment(prints: Prints, run: Callable[[], SliceOutcome]) -> None:
    prints(
        f"seen = b'canary-8c1f' in asked, 'canary' in str(sys.argv) + str(os.environ)\n"
        "from airflow_provider_lakecommit.exceptions import CatalogError\n"
        f"out.write({slice_process.READY!r} + pickle.dumps(CatalogError('LC9999', str(seen))))"
    )
    with pytest.raises(CatalogError, match=r"\(True, False\).*LC9999"):
        run()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 3 times, most recent failure: Lost task 0.2 "
            "in stage 0.0 (TID 2) (127.0.0.1 executor driver): org.apache.spark.SparkException: Python worker exited "
            "unexpectedly (crashed). Consider setting",
            True,
        ),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Container killed", True),
        ("Job 0 cancelled because SparkContext was shut down", False),
        ("Spark does not start", False),
    ],
)
def test_what_spark_reports_of_processes_that_died(text: str, expected: bool) -> None:
    assert workers_died(text) is expected
