# SPDX-License-Identifier: Apache-2.0
"""Our part of the Spark Connect protocol against pyspark's, addresses, texts, and what is sent."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import grpc
import pytest

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.engines import engine_of
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.spark.daemon import LIBRARIES
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from airflow_provider_lakecommit.spark.launch.connect_client import (
    DETAILS,
    ConnectClient,
    FailureKind,
    SparkConnectError,
    one_line,
)
from airflow_provider_lakecommit.spark.launch.connect_protocol import MESSAGES, METHODS, message
from airflow_provider_lakecommit.spark.launch.connect_task import command
from airflow_provider_lakecommit.spark.launch.connect_url import ConnectUrl
from airflow_provider_lakecommit.spark.launch.package import package_digest, package_zip
from dev.servers.server import free_port
from tests.unit.hooks.test_spark import CANARY, SECRETS, job


def official(name: str) -> Any:
    """The message of pyspark's own definitions."""
    import pyspark.sql.connect.proto as proto
    from google.protobuf import any_pb2
    from google.rpc import error_details_pb2, status_pb2

    modules = {"google.protobuf": any_pb2, "google.rpc": status_pb2}
    package, _, last = name.rpartition(".")
    found: Any = error_details_pb2 if last == "ErrorInfo" else modules.get(package, proto)
    for part in (last if package in modules else name).split("."):
        found = getattr(found, part)
    return found.DESCRIPTOR


def test_every_field_is_as_spark_defines_it() -> None:
    for name in MESSAGES:
        theirs = official(name).fields_by_name
        for ours in message(name).DESCRIPTOR.fields:
            field = theirs[ours.name]
            assert (name, ours.number, ours.is_repeated) == (name, field.number, field.is_repeated)
            if field.type == field.TYPE_ENUM:
                assert ours.type == ours.TYPE_INT32
            else:
                assert (name, ours.name, ours.type) == (name, field.name, field.type)
            if field.message_type is not None:
                full = field.message_type.full_name.removeprefix("spark.connect.").replace(".", "_")
                assert ours.message_type.name == full


def test_every_call_is_as_spark_defines_it() -> None:
    import pyspark.sql.connect.proto.base_pb2 as base

    theirs = base.DESCRIPTOR.services_by_name["SparkConnectService"].methods_by_name
    for name, (request, answer) in METHODS.items():
        assert (theirs[name].input_type.name, theirs[name].output_type.name) == (request, answer)


def test_spark_reads_what_we_write() -> None:
    import pyspark.sql.connect.proto as proto

    fields = {"session_id": "s", "operation_id": "o", "tags": ["a", "b"], "plan": {"root": {"range": {"end": 3}}}}
    read = proto.ExecutePlanRequest.FromString(message("ExecutePlanRequest")(**fields).SerializeToString())
    assert read == proto.ExecutePlanRequest(**fields)


def test_an_address_is_read_as_sparks_clients_read_it() -> None:
    plain = ConnectUrl.parse("sc://localhost")
    assert (plain.endpoint, plain.user, plain.secure, plain.metadata()) == ("localhost:15002", "lakecommit", False, [])
    full = ConnectUrl.parse("sc://spark:444/;use_ssl=true;token=a%3Db;user_id=eve;X-Team=one")
    assert (full.endpoint, full.user, full.secure) == ("spark:444", "eve", True)
    assert full.metadata() == [("x-team", "one"), ("authorization", "Bearer a=b")]
    assert ConnectUrl.parse("sc://[::1]:5").endpoint == "[::1]:5"


def test_a_token_makes_the_connection_secure_unless_it_stays_on_this_host() -> None:
    assert ConnectUrl.parse("sc://spark/;token=t").secure
    assert not ConnectUrl.parse("sc://localhost/;token=t").secure
    with pytest.raises(SpecError, match="LC5021"):
        ConnectUrl.parse("sc://spark/;token=t;use_ssl=false")


@pytest.mark.parametrize("word", ["yes", "1", "flase"])
def test_a_wish_for_encryption_is_not_taken_for_a_refusal(word: str) -> None:
    with pytest.raises(SpecError, match="LC5019"):
        ConnectUrl.parse(f"sc://spark/;use_ssl={word}")


@pytest.mark.parametrize("url", ["sc://spark", "sc://10.0.0.7:15002/;user_id=me", "sc://127.0.0.1.example.org"])
def test_beyond_this_host_nothing_is_sent_unencrypted_unless_that_is_reported(url: str) -> None:
    with pytest.raises(SpecError, match="LC5020"):
        ConnectUrl.parse(url)
    joined = url if "/;" in url else f"{url}/"
    assert ConnectUrl.parse(f"{joined};use_ssl=true").secure
    assert not ConnectUrl.parse(f"{joined};use_ssl=false").secure


@pytest.mark.parametrize(
    "url", ["spark:15002", "http://spark", "sc://", "sc://spark/path", "sc://spark:x", "sc://a/;b"]
)
def test_another_address_is_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(SpecError, match=r"sc://host:port.*(LC5017|LC5018)"):
        ConnectUrl.parse(url)


def test_no_token_is_in_a_text() -> None:
    url = ConnectUrl.parse(f"sc://spark/;token={CANARY}")
    assert CANARY not in f"{url} {url!r}"
    for wrong in (f"sc://spark:x/;token={CANARY}", f"http://spark/;token={CANARY}"):
        with pytest.raises(SpecError) as raised:
            ConnectUrl.parse(wrong)
        assert CANARY not in str(raised.value)


def test_of_a_long_text_the_first_line_and_the_error_are_reported() -> None:
    text = "[X] Job aborted: worker:\n Traceback (most recent call last):\nModuleNotFoundError: No module\n\tat y"
    assert one_line(text) == "[X] Job aborted: worker:: ModuleNotFoundError: No module"
    assert one_line("") == ""


def test_a_server_that_is_away_is_reported_with_the_remedy() -> None:
    engine = ConnectEngine(f"sc://127.0.0.1:{free_port()}", deployment="d", landing="l")
    with pytest.raises(SparkJobError, match="LC5016"):
        engine.start()
    engine.close()


def test_sessions_are_of_a_deployment_a_landing_and_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def family(**fields: str) -> object:
        return ConnectEngine("sc://localhost", **{"deployment": "d", "landing": "l", "lane": "live", **fields})._family

    assert family() == family()
    assert len({family(), family(deployment="e"), family(landing="m"), family(lane="again")}) == 4
    before = family()
    # Another version of this package would find workers that hold the old one.
    monkeypatch.setattr("airflow_provider_lakecommit.spark.launch.connect.package_digest", lambda: "other")
    assert family() != before


def test_a_session_that_the_server_closed_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def settings(client: ConnectClient, *keys: str) -> dict[str, str]:
        requests.append(client.session_id)
        if len(requests) < 3:
            raise SparkConnectError(FailureKind.SESSION_OVER, "closed")
        return dict.fromkeys(keys, "there")

    monkeypatch.setattr(ConnectClient, "settings", settings)
    engines = [ConnectEngine("sc://localhost", deployment="d", landing="l") for _ in range(2)]
    engines[0].start()
    found = requests[-1]
    assert len(set(requests)) == 3
    requests.clear()
    engines[1].start()
    assert requests[-1] == found


def test_the_package_is_the_same_whoever_packs_it() -> None:
    assert package_zip() == package_zip()
    assert re.fullmatch(r"[0-9a-f]{16}", package_digest())
    with zipfile.ZipFile(BytesIO(package_zip())) as archive:
        assert "airflow_provider_lakecommit/spark/launch/connect_task.py" in archive.namelist()


@pytest.mark.heavy
def test_tasks_that_find_a_cold_session_at_once_all_send_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def add(_: ConnectClient, name: str, content: bytes) -> None:
        if name in names:
            raise SparkConnectError(FailureKind.FAILED, f"java.nio.file.FileAlreadyExistsException: /tmp/{name}")
        names.append(name)

    monkeypatch.setattr(ConnectClient, "settings", lambda *_: {})
    monkeypatch.setattr(ConnectClient, "add_python_file", add)
    monkeypatch.setattr(ConnectClient, "set", lambda *_: None)
    for _ in range(3):
        ConnectEngine("sc://localhost", deployment="d", landing="l").start()
    assert len(names) == 3
    assert all(package_digest() in name for name in names)


class _Failed:
    """A call that a server ended with an error of Java."""

    def __init__(self, text: str, reason: str = "") -> None:
        from google.protobuf.any_pb2 import Any as Packed
        from google.rpc.error_details_pb2 import ErrorInfo
        from google.rpc.status_pb2 import Status

        detail = Packed()
        detail.Pack(ErrorInfo(reason=reason, domain="org.apache.spark"))
        self._text, self._sent = text, Status(details=[detail]).SerializeToString() if reason else b""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (("server", "spark"), (DETAILS, self._sent)) if self._sent else ()


@pytest.mark.parametrize(
    ("failed", "text"),
    [
        (_Failed("/tmp/x.zip", "java.nio.file.FileAlreadyExistsException"), "FileAlreadyExistsException: /tmp/x.zip"),
        (_Failed("", "java.lang.NullPointerException"), "java.lang.NullPointerException"),
        (_Failed("/tmp/x.zip"), "INTERNAL: /tmp/x.zip"),
        (_Failed("[NO_SPACE] none left", "org.apache.spark.SparkException"), "[NO_SPACE] none left"),
    ],
)
def test_a_failure_names_the_class_of_its_error(failed: _Failed, text: str) -> None:
    error = ConnectClient(ConnectUrl.parse("sc://localhost"), UUID(int=1))._error(failed)
    assert (error.kind, str(error)[-len(text) :]) == (FailureKind.FAILED, text)


def test_what_is_sent_is_the_same_each_time_and_runs_without_pyspark_here() -> None:
    sent = command(job(), SECRETS)
    assert sent == command(job(), SECRETS)
    assert CANARY.encode() not in sent
    run, result = pickle.loads(sent)
    assert callable(run)
    assert result.names == list(SliceResult.__dataclass_fields__)


def test_functions_among_the_settings_are_refused() -> None:
    with pytest.raises(SpecError, match="LC5007"):
        command(job(), Secrets(kafka={"oauth_cb": print}, io={}))


def engine(monkeypatch: pytest.MonkeyPatch, *, conf: dict[str, str] | None = None, **fields: Any) -> Any:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(fields))
    return engine_of("spark_default", deployment="d", landing="l", conf=conf, grace=timedelta(seconds=1))


def test_the_type_of_the_connection_decides_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(engine(monkeypatch, conn_type="spark", host="local"), SparkSubmit)
    made = engine(monkeypatch, conn_type="spark_connect", host="spark", port=444, login="eve", password=CANARY)
    assert isinstance(made, ConnectEngine)
    assert made._url == ConnectUrl.parse(f"sc://spark:444/;user_id=eve;token={CANARY}")
    assert CANARY not in repr(vars(made))


def test_settings_for_a_server_that_runs_already_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="LC5306"):
        engine(monkeypatch, conn_type="spark_connect", host="spark", conf={"spark.x": "1"})


@pytest.mark.parametrize("fields", [{}, {"host": "spark/path"}])
def test_a_connection_that_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="LC5307"):
        engine(monkeypatch, conn_type="spark_connect", **fields)


LOADED = f"""
import sys
from airflow_provider_lakecommit.spark import daemon
daemon.preload()
missing = [m for m in {LIBRARIES!r} if m not in sys.modules]
print(missing, [m for m in sys.modules if m.startswith(daemon.PACKAGE)], daemon._threads())
"""


@pytest.mark.heavy
def test_the_daemon_has_libraries_but_neither_threads_nor_this_package() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[] [] 1", done.stderr


IDLE = """
import os, signal, time
from airflow_provider_lakecommit.spark import daemon
daemon.end_when_idle(0.5)
# Before the fork, as pyspark's daemon does: a child that ended earlier would stay, as one that nobody waited for.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    signal.pause() if WORKS else os._exit(0)
began = time.monotonic()
while time.monotonic() < began + (3 if WORKS else 50):
    signal.sigtimedwait([], 1)
print("lives", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("works", [True, False])
def test_a_daemon_ends_when_it_had_no_workers_for_a_while(works: bool) -> None:
    command = [sys.executable, "-c", IDLE.replace("WORKS", str(works))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            code = process.wait(60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        found = code, process.stdout.read()
    assert found == ((0, b"lives\n") if works else (-signal.SIGTERM, b""))


IMPORTED = """
import sys
import airflow_provider_lakecommit.spark.launch.connect as c
from airflow_provider_lakecommit.spark.launch.connect_protocol import message
message("ExecutePlanRequest")
import grpc
print([m for m in ("pyspark", "pandas", "pyarrow", "airflow") if m in sys.modules])
"""


def test_the_client_needs_neither_pyspark_nor_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
