# SPDX-License-Identifier: Apache-2.0
"""How `lakecommit connect rescue` is reported the way to Kafka Connect, without a login on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.cli.adopt import connect_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from tests.fakes.connect_worker import serving, status


def test_a_login_comes_from_the_file_and_the_address_from_either(tmp_path: Path) -> None:
    path = tmp_path / "connect.yaml"
    path.write_text("{url: 'http://a:8083', login: me, password: 4711, headers: {X-Tenant: one}, verify: false}")
    found = connect_of(str(path))
    assert found == {
        "url": "http://a:8083",
        "login": "me",
        "password": "4711",
        "headers": {"X-Tenant": "one"},
        "verify": False,
    }
    assert connect_of("http://b:1") == {"url": "http://b:1"}
    assert connect_of(None) is None


def test_a_worker_is_requested_with_that_login(tmp_path: Path) -> None:
    path = tmp_path / "connect.yaml"
    with serving() as worker:
        worker.answers = [(200, status("STOPPED"))]
        path.write_text(f"{{url: '{worker.url}', login: me, password: pw, headers: {{X-Tenant: one}}}}")
        assert ConnectRest(**(connect_of(str(path)) or {})).status("sink").is_stopped
        assert worker.headers["Authorization"].startswith("Basic ")
        assert worker.headers["X-Tenant"] == "one"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{url: 'http://a', user: me}", "unknown key 'user'.*LC8022"),
        ("[]", "a mapping of url, login.*LC8022"),
        ("{login: me}", "`url` of a Kafka Connect worker is missing.*LC8023"),
        ("{url: 'http://a', headers: [x]}", "`headers` is a mapping.*LC8024"),
        ("{url: 'http://a', verify: 3}", "`verify` true, false or a file.*LC8024"),
        ("{password: canary-4711", "cannot be parsed as YAML.*LC8005"),
    ],
)
def test_another_file_is_refused_and_no_password_printed(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "connect.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=named) as raised:
        connect_of(str(path))
    assert "canary" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="LC8005"):
        connect_of(str(tmp_path / "none.yaml"))
