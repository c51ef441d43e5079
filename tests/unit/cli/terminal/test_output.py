# SPDX-License-Identifier: Apache-2.0
"""Results go to standard output, the rest to standard error, and no secret to either."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import pytest

from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.redaction import secrets_in

CANARY = "canary-4711"


@pytest.fixture
def streams() -> tuple[io.StringIO, io.StringIO]:
    return io.StringIO(), io.StringIO()


@pytest.mark.parametrize(
    "section",
    [
        {"sasl.password": CANARY},
        {"ssl.key.pem": CANARY},
        {"s3.secret-access-key": CANARY},
        {"credential": CANARY},
        {"token": CANARY},
        {"header.Authorization": CANARY},
        {"uri": f"postgresql://user:{CANARY}@db/iceberg"},
        {"remote": f"sc://spark:15002/;token={CANARY}"},
    ],
    ids=lambda section: next(iter(section)),
)
def test_a_secret_of_the_spec_is_in_nothing_that_is_reported(
    section: dict[str, str], streams: tuple[io.StringIO, io.StringIO]
) -> None:
    out, err = streams
    output = Output(as_json=True, out=out, err=err)
    output.keep(section)
    output.log(f"connecting with {CANARY}")
    output.error(CatalogError("LC9999", f"refused {CANARY}"))
    output.result({"reason": [f"because of {CANARY}"]})
    output.lines([f"see {CANARY}"])
    assert CANARY not in out.getvalue() + err.getvalue()
    assert out.getvalue().count("***") == 3
    assert err.getvalue().count("***") == 2


def test_settings_that_are_no_secret_are_left_alone() -> None:
    plain = {
        "sasl.mechanism": "PLAIN",
        "bootstrap.servers": "kafka:9092",
        "uri": "sqlite:////data/x.db",
        "s3.region": "a",
    }
    assert secrets_in(plain, {"sasl.password": "no", "token": True}) == ()


def test_a_longer_secret_that_holds_a_shorter_one_is_left_out_complete() -> None:
    output = Output()
    output.keep({"password": "abc", "token": "abcdef"})
    assert output.clean("abcdef abc") == "*** ***"


def test_an_error_is_one_line_for_users_and_json_only_when_requested(streams: tuple[io.StringIO, io.StringIO]) -> None:
    out, err = streams
    Output(out=out, err=err).error(CatalogError("LC9999", "away"))
    assert (out.getvalue(), err.getvalue()) == ("", "lakecommit: away [LC9999]\n")
    Output(as_json=True, out=out, err=err).error(CatalogError("LC9999", "away"))
    assert json.loads(out.getvalue()) == {
        "error": {"type": "CatalogError", "code": "LC9999", "message": "away [LC9999]"}
    }


def test_the_remedy_of_a_chosen_landing_chooses_it_too(streams: tuple[io.StringIO, io.StringIO]) -> None:
    out, err = streams
    close = "close it with `lakecommit backfill SPEC --close x`"
    Output(landing="shop.a", out=out, err=err).error(CatalogError("LC9999", close))
    assert "`lakecommit backfill SPEC --landing shop.a --close x`" in err.getvalue()


def test_values_of_the_protocol_have_a_form_in_json(streams: tuple[io.StringIO, io.StringIO]) -> None:
    out, err = streams
    Output(out=out, err=err).result({"id": UUID(int=1), "at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\x00"})
    assert json.loads(out.getvalue()) == {
        "id": "00000000-0000-0000-0000-000000000001",
        "at": "2026-01-01T00:00:00+00:00",
        "raw": "00",
    }


NOISY = """
import os, sys
from airflow_provider_lakecommit.cli.terminal.output import Output, results_only
output = Output()
with results_only(output):
    print("noise of a library")
    os.system("echo noise of a child")
    output.result({"n": 1})
output.result({"n": 2})
"""


def test_while_results_only_holds_noise_goes_to_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == '{"n": 1}\n{"n": 2}\n'
    assert sorted(done.stderr.splitlines()) == ["noise of a child", "noise of a library"]


def test_a_text_that_no_terminal_takes_is_printed_escaped(streams: tuple[io.StringIO, io.StringIO]) -> None:
    out, err = streams
    output = Output(as_json=False, out=out, err=err)
    output.lines(["a header holds \ud800"])
    output.log("so does \udfff")
    assert (out.getvalue().encode(), err.getvalue().encode()) == (b"a header holds \\ud800\n", b"so does \\udfff\n")
