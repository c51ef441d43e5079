# SPDX-License-Identifier: Apache-2.0
"""What spark-submit is reported for the kinds of masters, and what it is never told."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Plan, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.connections import connection, master_url
from airflow_provider_lakecommit.hooks.spark import SparkMaster, SparkSubmit, _files, _last_error_lines, spark_master
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-8c1f"
SECRETS = Secrets(
    kafka={"bootstrap.servers": "a:1", "sasl.password": CANARY},
    io={"s3.secret-access-key": CANARY},
    tables={"shop.orders": TableStorage(properties={"s3.session-token": CANARY})},
)
NOBODY = UUID(int=0)


def job() -> WindowJob:
    partition = SourcePartition(topic="orders", topic_id="id", partition=0)
    spans, tables = (Span(partition, OffsetRange(0, 5)),), ("shop.orders",)
    share = Slice(slice_id=slice_id(NOBODY, spans, tables), group=0, spans=spans, tables=tables)
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="1",
        window_id=NOBODY,
        slices=(share,),
        targets=(),
        ends={partition: 5},
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return WindowJob(
        landing=Landing(name="orders", topics="orders", table="shop.orders"),
        plan=plan,
        group=0,
        numbers=(0,),
        commit_id=NOBODY,
        slot=0,
        catalog="lake",
        control_topic="control-lakecommit",
        control_partition=0,
    )


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **fields}))


@pytest.mark.parametrize(
    ("fields", "master"),
    [
        ({"host": "local[2]"}, SparkMaster(local=True, driver_on_cluster=False)),
        ({"host": "local"}, SparkMaster(local=True, driver_on_cluster=False)),
        ({"host": "yarn"}, SparkMaster(local=False, driver_on_cluster=False)),
        ({"host": "spark://m", "port": 7077}, SparkMaster(local=False, driver_on_cluster=False)),
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, SparkMaster(local=False, driver_on_cluster=True)),
    ],
)
def test_the_connection_reports_where_jobs_run(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], master: SparkMaster
) -> None:
    connect(monkeypatch, **fields)
    assert spark_master("spark_default") == master


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ("spark://localhost:7077", False),
        ("spark://m:7077", False),
        ('{"conn_type": "spark", "host": "spark://localhost", "port": 7077}', False),
        ('{"conn_type": "spark", "host": "local[2]"}', True),
    ],
)
def test_the_master_of_a_connection_is_what_the_hook_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, given: str, local: bool
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", given)
    assert spark_master("spark_default").local == local
    hook = SparkSubmitHook(conn_id="spark_default")
    assert hook._connection["master"] == master_url(connection("spark_default", "spark", ""))


def test_cluster_mode_on_a_standalone_cluster_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, host="spark://m", port=7077, extra={"deploy-mode": "cluster"})
    with pytest.raises(SpecError, match="LC5312"):
        spark_master("spark_default")


def test_a_missing_connection_is_an_error_and_not_yarn() -> None:
    with pytest.raises(SpecError, match="LC5301"):
        spark_master("nobody_made_this")


def command(monkeypatch: pytest.MonkeyPatch, conf: dict[str, str] | None = None, **fields: Any) -> list[str]:
    """What would be run, without running it."""
    connect(monkeypatch, **fields)
    master = spark_master("spark_default")
    with _files([job()], [SECRETS], ship=not master.local) as files:
        hook = files.hook({**master.conf, **(conf or {})}, "spark_default", master)
        return list(hook._build_spark_submit_command("main.py"))


@pytest.mark.parametrize(
    ("fields", "inside"),
    [
        ({"host": "spark://m:7077"}, True),
        ({"host": "local[2]"}, False),
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, False),
    ],
)
def test_what_a_driver_here_copies_goes_with_the_files_of_its_job(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], inside: bool
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/of/the/user")
    connect(monkeypatch, **fields)
    master = spark_master("spark_default")
    with _files([job()], [SECRETS], ship=not master.local) as files:
        copies = Path(files.environment(master)["SPARK_LOCAL_DIRS"])
    assert copies.is_relative_to(files.job.parent) == inside
    assert not files.job.parent.exists()


@pytest.mark.parametrize(
    ("local", "has_own", "first"),
    [
        (True, False, "beside"),
        (True, True, "beside"),
        (False, True, "own"),
        # The one next to this Python is a script that takes the first `python3` there is for the one that has pyspark.
        (False, False, "beside"),
    ],
)
def test_whose_spark_submit_runs_and_with_it_whose_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, local: bool, has_own: bool, first: str
) -> None:
    if has_own:
        (tmp_path / "spark-submit").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = SparkMaster(local=local, driver_on_cluster=False).environment["PATH"].split(os.pathsep)
    assert path[0] == {"beside": os.path.dirname(sys.executable), "own": str(tmp_path)}[first]
    assert len(path) == 2


@pytest.mark.heavy
def test_files_that_a_killed_task_left_are_removed_by_the_next_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = (
        "import os, signal; from tests.unit.hooks.test_spark import SECRETS, _files, job\n"
        "with _files([job()], [SECRETS], ship=False): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", killed], env={**os.environ, "TMPDIR": str(tmp_path)}, cwd=ROOT, check=False)
    assert any(CANARY in path.read_text() for path in tmp_path.glob("*/secrets.json"))
    with _files([job()], [SECRETS], ship=False) as files:
        assert list(tmp_path.iterdir()) == [files.job.parent]
    assert list(tmp_path.iterdir()) == []


def option(of: list[str], name: str) -> list[str]:
    return [of[place + 1] for place, word in enumerate(of) if word == name]


def test_a_local_job_runs_this_python_and_ships_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    arguments = command(monkeypatch, host="local[2]")
    assert option(arguments, "--master") == ["local[2]"]
    assert f"spark.pyspark.python={sys.executable}" in option(arguments, "--conf")
    assert "spark.ui.enabled=false" in option(arguments, "--conf")
    assert option(arguments, "--files") == option(arguments, "--py-files") == []


def test_a_job_on_a_cluster_is_given_this_package_and_no_file_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = command(monkeypatch, host="spark://m:7077")
    [package] = option(arguments, "--py-files")
    assert Path(package).name == "airflow_provider_lakecommit.zip"
    # The driver is here and reads its files here: executors would keep copies of them.
    assert option(arguments, "--files") == []
    assert Path(option(arguments, "--job")[0]).is_absolute()


def test_a_driver_on_the_cluster_finds_its_files_by_name_and_uses_its_own_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = command(monkeypatch, host="yarn", extra={"deploy-mode": "cluster"})
    [files] = option(arguments, "--files")
    assert [Path(f).name for f in files.split(",")] == ["job.json", "secrets.json"]
    assert option(arguments, "--job") == ["job.json"]
    assert option(arguments, "--secrets") == ["secrets.json"]
    assert not [c for c in option(arguments, "--conf") if c.startswith("spark.pyspark.python")]


def test_the_users_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = command(monkeypatch, conf={"spark.driver.memory": "7g"}, host="local[2]")
    assert [c for c in option(arguments, "--conf") if c.startswith("spark.driver.memory")] == ["spark.driver.memory=7g"]


def test_no_secret_is_in_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("local[2]", "spark://m:7077"):
        assert CANARY not in " ".join(command(monkeypatch, host=host))


SECRET_CONF = {
    "spark.hadoop.fs.s3a.secret.key": CANARY,
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": f"{CANARY}==",
    "spark.ssl.keyStorePassword": CANARY,
    "spark.connect.authenticate.token": CANARY,
    "spark.sql.catalog.lake.uri": f"jdbc:postgresql://me:{CANARY}@db/x",
    "spark.driver.extraJavaOptions": f"-Dhttp.proxyPassword={CANARY} -Xss4m",
}


@pytest.mark.parametrize("host", ["local[2]", "spark://m:7077"])
def test_secret_settings_of_spark_go_in_a_file_for_this_user_only(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Whoever may list processes reads their arguments, and Airflow logs the whole command."""
    connect(monkeypatch, host=host)
    master = spark_master("spark_default")
    with _files([job()], [SECRETS], ship=not master.local) as files:
        hook = files.hook({**SECRET_CONF, "spark.executor.memory": "2g"}, "spark_default", master)
        words = list(hook._build_spark_submit_command("main.py"))
        [properties] = option(words, "--properties-file")
        assert stat.S_IMODE(os.stat(properties).st_mode) == 0o600
        assert Path(properties).parent == files.job.parent
        text = Path(properties).read_text()
    assert CANARY not in " ".join(words)
    assert "spark.executor.memory=2g" in option(words, "--conf")
    assert "--load-spark-defaults" in words
    assert all(f"{key}=" in text for key in SECRET_CONF)
    assert text.count(CANARY) == len(SECRET_CONF)
    assert not Path(properties).exists()


def test_without_secret_settings_spark_reads_its_own_defaults_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = command(monkeypatch, conf={"spark.authenticate": "true"}, host="local[2]")
    assert not {"--properties-file", "--load-spark-defaults"} & set(arguments)


def test_what_spark_shows_of_its_settings_is_without_secrets_of_every_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    [pattern] = [c for c in option(command(monkeypatch, host="local[2]"), "--conf") if "redaction.regex=" in c]
    found = re.compile(pattern.split("=", 1)[1])
    assert [key for key in SECRET_CONF if not found.search(key)] == [
        "spark.sql.catalog.lake.uri",
        "spark.driver.extraJavaOptions",
    ]
    assert not found.search("spark.executor.memory")


ENDED = "Cannot execute: spark-submit --conf spark.x=1 main.py. Error code is: 1. "


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (f"{ENDED}\nLast spark-submit output:\nWARN: a\nJAVA_HOME is not set", "Spark needs Java 17 or 21 on "),
        (
            f"{ENDED}\nLast spark-submit output:\nspark-class: line 71: /no/java: No such file or directory\nx: CMD",
            "Spark needs Java 17 or 21 on ",
        ),
        (f"{ENDED}\nLast spark-submit output:\nfirst\n  OutOfMemoryError\n", "code 1, OutOfMemoryError\nfirst"),
        (
            f"{ENDED}\nLast spark-submit output:\nx\nException: Master must be\nat a.b.C$.d(C.scala:3)\n... 7 more",
            "code 1, Exception: Master must be\nx",
        ),
        ("Cannot execute: x. Error code is: -15.\nLast spark-submit output:\nlast", "code -15, last"),
        ("Cannot execute: spark-submit main.py. Error code is: 1.", "Cannot execute: spark-submit main.py"),
        ("No such thing", "No such thing"),
    ],
)
def test_the_last_texts_of_a_job_come_first_and_not_its_command(error: str, message: str) -> None:
    assert _last_error_lines(error).startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        {"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1"}},
        {"conn_type": "spark", "host": "lokal[2]"},
        {"conn_type": "spark"},
        {"conn_type": "http", "host": "spark", "port": 15002},
    ],
    ids=lambda fields: f"{fields['conn_type']} {fields.get('host', '')}",
)
def test_a_connection_that_names_no_master_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps(fields))
    with pytest.raises(SpecError, match="LC5311"):
        spark_master("odd")


def test_a_machine_without_java_is_reported_by_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the provider's own hook and Spark's own script."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    engine = SparkSubmit("spark_default", grace=timedelta(seconds=5))
    with pytest.raises(SparkJobError, match="LC5315"):
        engine.run(job(), SECRETS)


def test_the_files_are_for_this_user_only_and_deleted_afterwards() -> None:
    with _files([job()], [SECRETS], ship=True) as files:
        assert stat.S_IMODE(files.secrets.stat().st_mode) == 0o600
        assert stat.S_IMODE(files.secrets.parent.stat().st_mode) == 0o700
        assert CANARY in files.secrets.read_text()
        assert CANARY not in files.job.read_text()
        assert WindowJob.from_json(files.job.read_text()) == job()
    assert not files.secrets.parent.exists()


def test_the_shipped_package_can_be_imported_from() -> None:
    with _files([job()], [SECRETS], ship=True) as files:
        assert files.package is not None
        with zipfile.ZipFile(files.package) as archive:
            names = set(archive.namelist())
    assert {"airflow_provider_lakecommit/__init__.py", "airflow_provider_lakecommit/spark/job.py"} <= names


def test_functions_among_the_settings_are_refused_and_leave_no_file() -> None:
    secrets = Secrets(kafka={"bootstrap.servers": "a:1", "oauth_cb": print}, io={})
    with pytest.raises(SpecError, match="LC5007"), _files([job()], [secrets], ship=False):
        pytest.fail("a job without its settings must not run")


def test_a_job_that_was_stopped_before_it_began_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="local[1]")
    submit = SparkSubmit("spark_default", grace=timedelta(seconds=1))
    submit.stop()
    with pytest.raises(SparkJobError, match="LC5314"):
        submit.run(job(), SECRETS)


def test_a_worker_without_spark_submit_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, host="local[1]")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="LC5316"):
        SparkSubmit("spark_default", grace=timedelta(seconds=1)).run(job(), SECRETS)
