# SPDX-License-Identifier: Apache-2.0
"""What `make up` says of ports before it starts anything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dev.paths import CHECKOUT
from dev.stack import PORT_VARIABLES, Stack, WarehouseError, check_warehouse, main


@pytest.fixture(autouse=True)
def nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECOMMIT_RUN_DIR", str(tmp_path))
    for variable in PORT_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("variable", PORT_VARIABLES)
def test_a_port_that_is_taken_is_reported_before_anything_is_started(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv(variable, str(port))
        assert main(["up"]) == 1
    text = capsys.readouterr()
    assert text.err == f"{variable}={port}: somebody listens there already: give another port, or none\n"
    assert text.out == ""
    assert list(tmp_path.rglob("broker.log")) == []


@pytest.mark.parametrize("text", ["airflow", "0", "70000", "-1"])
def test_what_is_no_port_is_reported(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKECOMMIT_AIRFLOW_PORT", text)
    assert main(["up"]) == 1
    assert capsys.readouterr().err.startswith(f"LAKECOMMIT_AIRFLOW_PORT={text}: give a port")


@pytest.mark.heavy
def test_a_reader_that_has_ended_stops_nothing() -> None:
    script = (
        "import sys; from dev.stack import _say; [_say('x' * 9999) for _ in range(99)]; print('on', file=sys.stderr)"
    )
    talker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert talker.stdout is not None
    assert talker.stderr is not None
    talker.stdout.readline()
    talker.stdout.close()
    with talker.stderr as errors:
        assert errors.read() == "on\n"
    assert talker.wait(60) == 0


def test_a_spark_server_that_was_never_started_is_no_connection(tmp_path: Path) -> None:
    stack = Stack(tmp_path, namespace="demo", deployment="demo")
    stack.spark.port  # noqa: B018  a port is chosen when it is requested
    assert stack._warm_spark() == {}
    stack.spark.log.parent.mkdir(parents=True)
    stack.spark.log.touch()
    assert list(stack._warm_spark()) == ["spark_connect_default"]


def test_on_a_cluster_jobs_are_submitted_to_its_master(tmp_path: Path) -> None:
    stack = Stack(tmp_path, deployment="demo", on_cluster=True)
    stack.spark.log.parent.mkdir(parents=True)
    stack.spark.log.touch()
    assert stack._warm_spark() == {}
    connection = json.loads(stack.airflow.environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection == {"conn_type": "spark", "host": stack.cluster.url}
    assert stack.cluster.url in stack.where_spark_is
    assert stack.running == []


def test_the_targets_of_make_write_utf_8_behind_a_c_locale() -> None:
    recipe = f"print-mode:\n\t@{sys.executable} -c 'import sys; print(\"…\", sys.flags.utf8_mode)'\n"
    makefile = f"include {CHECKOUT / 'Makefile'}\n{recipe}"
    hostile = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        ["make", "-s", "-f", "-", "print-mode"], input=makefile.encode(), capture_output=True, check=False, env=hostile
    )
    assert done.stdout.decode() == "… 1\n", done.stderr


def test_a_warehouse_that_cannot_be_written_is_found_before_anything_is_started(tmp_path: Path) -> None:
    catalog = {"name": "lakecommit", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    check_warehouse({**catalog, "warehouse": f"file://{tmp_path}/lake"})
    assert [each.name for each in (tmp_path / "lake").iterdir()] == []
    (tmp_path / "lake").rmdir()
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(ValueError, match="LC3307"):
        check_warehouse({**catalog, "warehouse": f"file://{tmp_path}/lake"})
    (tmp_path / "lake").unlink()
    (tmp_path / "lake").symlink_to("/proc")
    with pytest.raises(WarehouseError, match="writing"):
        check_warehouse({**catalog, "warehouse": f"file://{tmp_path}/lake"})
