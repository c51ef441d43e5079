# SPDX-License-Identifier: Apache-2.0
"""Local files through the light file access: there or not, however their location is written. Files in S3 by Arrow,
with our options, unless the connection names an implementation.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem

from airflow_provider_lakecommit.iceberg.arrow_io import ArrowFileIO
from airflow_provider_lakecommit.iceberg.file_io import GuardedFileIO, LightFileIO, with_light_io


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
def test_a_local_file_is_there_until_it_is_removed(tmp_path: Path, scheme: str) -> None:
    location, files = (
        f"{scheme}{tmp_path / 'folder' / 'one file.bin'}",
        LightFileIO({"warehouse": f"file://{tmp_path}"}),
    )
    assert not files.new_input(location).exists()
    with files.new_output(location).create() as out:
        out.write(b"abc")
    assert files.new_input(location).exists()
    assert files.new_output(location).exists()
    assert len(files.new_input(location)) == 3
    files.delete(location)
    assert not files.new_input(location).exists()


STORE = {"s3.region": "here", "s3.access-key-id": "id", "s3.secret-access-key": "hidden", "s3.connect-timeout": "7"}


class Patient(AwsDefaultS3RetryStrategy):
    """A user's retry strategy."""

    def __init__(self) -> None:
        super().__init__(max_attempts=21)


def serving(properties: dict[str, str], scheme: str = "s3") -> Any:
    return GuardedFileIO(properties)._serving(f"{scheme}://bucket/one")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_is_served_with_a_delayed_open_and_the_options_of_the_connection(scheme: str) -> None:
    for properties in (STORE, with_light_io(STORE)):
        io = serving(properties, scheme)
        assert type(io) is ArrowFileIO
        made = io.fs_by_scheme(scheme, "bucket")
        assert made.region == "here"
        options = made.__reduce__()[1][0]
        assert (options["allow_delayed_open"], options["secret_key"], options["connect_timeout"]) == (
            True,
            "hidden",
            7.0,
        )
        assert type(pickle.loads(pickle.dumps(io))) is ArrowFileIO


def test_another_implementation_of_the_connection_serves_s3() -> None:
    named = {**STORE, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    for properties in (named, with_light_io(named)):
        assert type(serving(properties)) is not ArrowFileIO


@pytest.mark.parametrize(
    ("named", "kind", "attempts"),
    [({}, AwsDefaultS3RetryStrategy, 11), ({"s3.retry-strategy-impl": f"{__name__}.Patient"}, Patient, 21)],
    ids=["ours", "the connection's"],
)
def test_requests_have_eleven_attempts_unless_the_connection_names_a_strategy(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], kind: type, attempts: int
) -> None:
    given: dict[str, Any] = {}

    def made(**options: Any) -> S3FileSystem:
        given.update(options)
        return S3FileSystem(**options)

    monkeypatch.setattr("airflow_provider_lakecommit.iceberg.arrow_io.S3FileSystem", made)
    serving({**STORE, **named}).fs_by_scheme("s3", "bucket")
    assert type(given["retry_strategy"]) is kind
    assert given["retry_strategy"].max_attempts == attempts


def test_local_files_load_no_arrow(tmp_path: Path) -> None:
    code = (
        "import sys; from airflow_provider_lakecommit.iceberg.file_io import LightFileIO; "
        f"io = LightFileIO({{'warehouse': 'file://{tmp_path}'}}); "
        f"io.new_output('file://{tmp_path}/one').create().close(); print('pyarrow.fs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
