# SPDX-License-Identifier: Apache-2.0
"""The program of spark-submit: one window job, from a job file and a file of connection settings.

Contract: ``main.py --job FILE --secrets FILE``, for one job, or a list of jobs and a list of their settings; a file is
read from its path, or by its name from where Spark shipped it. Prints one line per slice and a summary, never a
setting. Exits with 0 if every slice is done, blocked or superseded by another attempt; with 1 if a slice has failed or
must be repeated, or the job died; with 3 if it died because worker processes died; with 143 on SIGTERM, at once, since
finished work is in the control topic.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.job import SliceResult

STOPPED = 128 + signal.SIGTERM
WORKERS_DIED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    parser = argparse.ArgumentParser(prog="main.py", description="Run the window job of one partition group.")
    parser.add_argument("--job", required=True, help="file with the job")
    parser.add_argument("--secrets", required=True, help="file with the connection settings")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        results = _run(options.job, options.secrets)
    except Exception as e:
        _log(f"the Spark job died: {_without_secrets(f'{type(e).__name__}: {e}', options.secrets)}")
        from airflow_provider_lakecommit.spark.window import workers_died

        return WORKERS_DIED if workers_died(str(e)) else 1
    for result in results:
        _log(str(result))
    _log(_summary(results))
    return 0 if all(result.status.is_clean for result in results) else 1


def _run(job_file: str, secrets_file: str) -> list[SliceResult]:
    from pyspark.sql import SparkSession

    from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
    from airflow_provider_lakecommit.spark.window import run_window, run_windows

    spark = SparkSession.builder.getOrCreate()
    try:
        text, secrets = _found(job_file).read_text(encoding="utf-8"), Secrets.load_together(secrets_file)
        if not text.startswith("["):
            return run_window(spark, WindowJob.from_json(text), secrets[0])
        jobs = [WindowJob.from_json(each) for each in json.loads(text)]
        return [result for results in run_windows(spark, list(zip(jobs, secrets, strict=True))) for result in results]
    finally:
        # A context that has ended already must not hide the error.
        with suppress(Exception):
            spark.stop()


def _without_secrets(text: str, secrets_file: str) -> str:
    """Remove secrets of the connections and of Spark's own settings, which Java's exceptions may quote."""
    from airflow_provider_lakecommit.redaction import redacted
    from airflow_provider_lakecommit.spark.job import Secrets

    settings: dict[str, str] = {}
    with suppress(Exception):
        for secrets in Secrets.load_together(secrets_file):
            text = secrets.without(text)
    with suppress(Exception):
        from pyspark import SparkConf

        settings = dict(SparkConf().getAll())
    return redacted(text, settings)


def _found(file: str) -> Path:
    """Return the file, or the copy that Spark put next to a driver on another machine."""
    from pyspark import SparkFiles

    here = Path(file)
    return here if here.exists() else Path(SparkFiles.get(here.name))


def _summary(results: Iterable[SliceResult]) -> str:
    found = list(results)
    ends = Counter(result.status for result in found)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(ends.items())) or "none"
    records, rows = sum(r.records for r in found), sum(r.rows for r in found)
    none = f", {records - rows} gave none (rejected or filtered)" if records > rows else ""
    return f"{len(found)} slices: {counts}; {records} records read, {rows} rows written{none}"


def _stop(number: int, frame: object) -> NoReturn:
    """Exit at once: the JVM ends Spark's workers with itself, and waiting would only lose the grace period."""
    sys.stdout.flush()
    os._exit(STOPPED)


def _log(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    # Python put this file's folder first on the path, where our own module names would hide others of the same name.
    beside = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != beside]
    raise SystemExit(main())
