# SPDX-License-Identifier: Apache-2.0
"""Exit codes, and what is loaded before a command runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli.terminal.output import Exit
from tests.support.declared import nested

SPEC = {
    "name": "orders",
    "topics": "orders",
    "table": "shop.orders",
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "catalog": {"type": "sql", "uri": "sqlite:///:memory:"},
}


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., str]:
    """`spec_file(**changes) -> path`; a change to None leaves the key out."""

    def write(**changes: object) -> str:
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps(nested(**{k: v for k, v in {**SPEC, **changes}.items() if v is not None})))
        return str(path)

    return write


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["land"],
        ["land", "spec.yaml", "--cycles", "0"],
        ["land", "spec.yaml", "--cycles", "two"],
        ["reset", "blocked", "spec.yaml"],
        ["reset", "blocked", "spec.yaml", "--skip", "--raise", "5"],
        ["reset", "blocked", "spec.yaml", "--raise", "5:2"],
        ["reset", "blocked", "spec.yaml", "--raise", "-5"],
        ["reset", "offsets", "spec.yaml"],
        ["connect"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        face.main(arguments)
    assert left.value.code == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tabel": "shop.x"}, "did you mean 'table'"),
        ({"groups": 0}, "whole number of at least 1"),
        ({"kafka": None}, "bootstrap.servers"),
        ({"catalog": None}, "section 'catalog' is missing"),
        ({"spark": {"mister": "local[2]"}}, "unknown key 'mister'"),
        ({"spark": {"master": 2}}, "`master` 2 is not one of local, local[4]"),
        ({"spark": {"master": "local[2]", "remote": "sc://x"}}, "either `master` or `remote`"),
    ],
    ids=str,
)
def test_a_bad_spec_is_2_and_reports_what_is_wrong(
    changes: dict[str, object], message: str, spec_file: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert face.main(["land", spec_file(**changes), "--json"]) == 2
    out, err = capfd.readouterr()
    assert message in err
    error = json.loads(out)["error"]
    assert error["type"] == "SpecError"
    assert message in error["message"]


def test_a_misspelt_option_is_reported_with_the_one_that_was_meant(
    spec_file: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        face.main(["status", "--max-lagg", "3", spec_file()])
    assert ended.value.code == Exit.USAGE
    text = capsys.readouterr().err
    assert "usage: lakecommit status" in text
    assert "unrecognized arguments: --max-lagg" in text
    assert "did you mean '--max-lag'?" in text


def test_a_spec_that_is_not_there_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert face.main(["status", "/nowhere/spec.yaml"]) == Exit.USAGE
    assert "/nowhere/spec.yaml" in capsys.readouterr().err


def test_an_address_that_is_no_spark_connect_server_is_2(
    spec_file: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert face.main(["land", spec_file(spark={"remote": "http://x/;token=canary-4711"})]) == Exit.USAGE
    err = capfd.readouterr().err
    assert "sc://" in err
    assert "canary-4711" not in err


def test_an_unexpected_error_is_1_with_a_traceback_without_secrets(
    spec_file: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import airflow_provider_lakecommit.cli.verify as command

    def broken(*_: object, **__: object) -> int:
        raise RuntimeError("canary-4711 in a driver's text")

    monkeypatch.setattr(command, "verify", broken)
    spec = spec_file(kafka={"bootstrap.servers": "127.0.0.1:1", "sasl.password": "canary-4711"})
    assert face.main(["verify", spec]) == Exit.REFUSED
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "canary-4711" not in err


@pytest.mark.heavy(but=("connect-*",))
@pytest.mark.parametrize(
    ("command", "library", "lines"),
    [
        (
            ["connect", "rescue", "--connector", "x", "--catalog", "{spec}", "--bootstrap", "127.0.0.1:1"],
            "pyiceberg",
            1,
        ),
        (["status", "{spec}"], "airflow_provider_lakecommit.cli.status", None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_library_that_is_not_installed_is_one_line_and_a_module_of_ours_a_traceback(
    command: list[str], library: str, lines: int | None, spec_file: Callable[..., str]
) -> None:
    without = "import sys; sys.modules[sys.argv[1]] = None; from airflow_provider_lakecommit.cli.main import main; "
    arguments = [part.format(spec=spec_file()) for part in command]
    done = subprocess.run(
        [sys.executable, "-c", f"{without}sys.exit(main(sys.argv[2:]))", library, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == Exit.REFUSED
    assert library in done.stderr
    assert ("Traceback" in done.stderr) is (lines is None)
    assert lines is None or len(done.stderr.splitlines()) == lines


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        face.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.strip() == f"lakecommit {__version__}"


LOADED = """
import sys
from airflow_provider_lakecommit.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1].split(","))), file=sys.stderr)
"""


def test_help_loads_nothing_heavy() -> None:
    heavy = "pyspark,py4j,pyiceberg,pyarrow,airflow,confluent_kafka,fastavro,yaml"
    done = subprocess.run(
        [sys.executable, "-c", LOADED, heavy], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stderr.strip() == "[]"
    assert "maintain" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lakecommit re", {"reset", "resume"}),
        ("lakecommit reset ", {"offsets", "hard"}),
        ("lakecommit land orders.yaml --follow-", {"--follow-for"}),
    ],
)
def test_a_shell_reports_what_may_come_next(typed: str, offered: set[str]) -> None:
    """As bash asks: the answer is on file descriptor 8."""
    arguments = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": " ", "COMP_TYPE": "9"}
    place = {"COMP_LINE": typed, "COMP_POINT": str(len(typed))}
    command = f"'{sys.executable}' -m airflow_provider_lakecommit.cli.main 8>&1 9>/dev/null 1>/dev/null 2>/dev/null"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **arguments, **place},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert offered <= {each.strip() for each in done.stdout.split()}, done
