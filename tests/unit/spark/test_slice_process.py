# SPDX-License-Identifier: Apache-2.0
"""A slice in a process of its own: what that says is taken as if it was said here, and its death is a failure."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    RecordsError,
    SourceCorruptError,
    SourceUnavailableError,
    SparkJobError,
)
from airflow_provider_lakecommit.spark import slice_process
from airflow_provider_lakecommit.spark.failures import passes, spans_of
from airflow_provider_lakecommit.spark.job import Secrets
from airflow_provider_lakecommit.spark.slice_process import run_apart
from airflow_provider_lakecommit.spark.slices import SliceOutcome, SliceWork
from airflow_provider_lakecommit.spark.window import workers_died
from tests.fakes.lake import data_file
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job

Prints = Callable[[str], None]


@pytest.fixture
def prints(monkeypatch: pytest.MonkeyPatch) -> Prints:
    """The process runs this in place of its work."""

    def run_program(program: str) -> None:
        text = f"import os, pickle, sys; asked = sys.stdin.buffer.readline(); out = sys.stdout.buffer\n{program}"
        monkeypatch.setattr(slice_process, "COMMAND", (sys.executable, "-c", text))

    return run_program


@pytest.fixture
def run(tmp_path: Path) -> Callable[[], SliceOutcome]:
    landing = FakeLanding(tmp_path, {"slice_records": 10})
    job = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    landing.session.close()
    landing.catalog.close()
    assert job is not None
    work = SliceWork.of(job, job.plan.slices[0], uuid4(), window=30)
    secrets = Secrets(kafka={"bootstrap.servers": "127.0.0.1:1", "sasl.password": "canary-8c1f"}, io={})
    alone = replace(job, plan=replace(job.plan, slices=(work.slice,)))
    return lambda: run_apart(alone, secrets, work)


def test_rejects_are_counted_against_the_whole_window(
    prints: Prints, run: Callable[[], SliceOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[SliceWork] = []

    def run_slice(work: SliceWork, *_: object, **__: object) -> SliceOutcome:
        given.append(work)
        return outcome()

    monkeypatch.setattr("airflow_provider_lakecommit.spark.slices.run_slice", run_slice)
    talk = slice_process._talk

    def talked(process: Any, request: bytes) -> tuple[bool, bytes]:
        slice_process._process(json.loads(request))
        return talk(process, request)

    monkeypatch.setattr(slice_process, "_talk", talked)
    prints(ready(outcome()))
    run()
    assert [(len(work.slice), work.window) for work in given] == [(10, 30)]


def ready(answer: object) -> str:
    return f"out.write({slice_process.READY!r} + {pickle.dumps(answer)!r}); out.flush()"


def outcome() -> SliceOutcome:
    return SliceOutcome(
        spans=(),
        files={"shop.rows": [data_file("file:///a.parquet", 3)]},
        rows={"shop.rows": 3},
        bytes=30,
        ignored_fields={},
        blocked=None,
        rejected=(),
        cost=SliceCost(read_seconds=0, decode_seconds=0, write_seconds=0, bytes=1),
    )


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
    prints(ready(slice_process._error_fields(error)))
    with pytest.raises(type(error)) as raised:
        run()
    assert str(raised.value) == str(error)
    assert getattr(raised.value, "spans", ()) == getattr(error, "spans", ())


@pytest.mark.parametrize(("error", "expected"), [(OSError("disk"), True), (OverflowError("date"), False)])
def test_what_others_raise_keeps_its_kind(
    prints: Prints, run: Callable[[], SliceOutcome], error: Exception, expected: bool
) -> None:
    prints(ready(slice_process._error_fields(error)))
    with pytest.raises((SparkJobError, RecordsError), match=f"{type(error).__name__}: {error}") as raised:
        run()
    assert passes(raised.value) is expected


def test_nothing_secret_is_in_its_arguments_or_its_environment(prints: Prints, run: Callable[[], SliceOutcome]) -> None:
    prints(
        f"seen = b'canary-8c1f' in asked, 'canary' in str(sys.argv) + str(os.environ)\n"
        "told = {'kind': 'CatalogError', 'code': 'LC9999', 'text': str(seen), 'spans': ()}\n"
        f"out.write({slice_process.READY!r} + pickle.dumps(told))"
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
