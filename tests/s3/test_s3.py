# SPDX-License-Identifier: Apache-2.0
"""Tables in a real S3 server: landed, compacted, expired, swept and verified, with and without failing requests.

The committer and the writer are those of a landing; the rows are read from the server's folder by DuckDB.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from threading import Timer
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy

from airflow_provider_lakecommit.core import LIVE, REWRITE, attempt_id, file_mark, file_name
from airflow_provider_lakecommit.exceptions import LakecommitError, StorageError
from airflow_provider_lakecommit.iceberg import GuardedFileIO, arrow_io, data_folder, trouble_of
from airflow_provider_lakecommit.iceberg.parquet.parquet import OpenFile
from airflow_provider_lakecommit.operations.maintenance import sweep as sweeps
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from airflow_provider_lakecommit.operations.maintenance.expire import expire
from airflow_provider_lakecommit.operations.maintenance.garbage import Why
from airflow_provider_lakecommit.operations.maintenance.listing import UnfinishedUploads, _client
from airflow_provider_lakecommit.operations.maintenance.sweep import SweptTable, sweep
from airflow_provider_lakecommit.spark import try_storage
from airflow_provider_lakecommit.status.doctor.lake import probe_path
from dev.servers.s3 import S3Server
from tests.fakes.kafka import FakeControl
from tests.fakes.lake import CONTROL
from tests.fakes.replaced_lake import RowsLake
from tests.s3.proxy import FaultyProxy, counts

pytestmark = pytest.mark.s3

WINDOWS = [((0, n * 10, n * 10 + 10), (1, n * 5, n * 5 + 5)) for n in range(6)]
ALL = {"first": [(0, 0, 60), (1, 0, 30)]}


class OneAttempt(AwsStandardS3RetryStrategy):
    """A user's retry strategy."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)


def land(lake: RowsLake) -> None:
    for window in WINDOWS:
        lake.land(*window)


def check(lake: RowsLake) -> None:
    """All rows are in the table once, and `verify` agrees."""
    assert lake.found() == lake.expected(ALL)
    assert lake.findings() == []


# -- a table's life ---------------------------------------------------------------------------------------------------


def test_a_table_is_landed_compacted_expired_and_swept(lake: RowsLake, server: S3Server) -> None:
    land(lake)
    check(lake)
    stale = {f.file_path for f in lake.files()}
    (done,) = compact(lake.session(), write=True)
    assert (done.error, done.files, len(lake.files())) == ("", 6, 1)
    check(lake)
    lake.land((0, 60, 70))
    (expired,) = expire(lake.session(), older_than=timedelta(minutes=-1), remove=True)
    assert (expired.error, expired.expired > 5) == ("", True)
    left = {f"s3://lake/{path.relative_to(server.bucket)}" for path in server.bucket.rglob("*.parquet")}
    assert stale & left == set()
    assert lake.findings() == []
    assert lake.found().total() == 100


def test_a_sweep_removes_a_file_that_no_snapshot_has(lake: RowsLake, server: S3Server) -> None:
    land(lake)
    table = lake.load()
    uuid = table.metadata.table_uuid
    name = file_name(attempt_id(uuid, uuid4()), file_mark(uuid, "orders", REWRITE), 0)
    with table.io.new_output(f"{data_folder(table)}/{name}").create() as out:
        out.write(b"of a compaction that was killed")
    (path,) = server.bucket.rglob(name)
    then = time.time() - 30 * 24 * 3600
    os.utime(path, (then, then))
    session = lake.session()
    session.control = FakeControl(name=CONTROL.topic, topic_id=CONTROL.topic_id)
    (swept,) = sweep(session, older_than=timedelta(days=3), remove=True)
    assert (swept.error, swept.removed) == ("", 1)
    assert not path.exists()
    check(lake)


def test_a_sweep_aborts_uploads_that_killed_tasks_left(
    lake: RowsLake, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake)
    table = lake.load()
    uuid = table.metadata.table_uuid
    names = {
        "own": file_name(attempt_id(uuid, uuid4()), file_mark(uuid, "orders", LIVE), 0),
        "other": file_name(attempt_id(uuid, uuid4()), file_mark(uuid, "clicks", LIVE), 0),
        "foreign": "part-0001.parquet",
    }
    bucket, _, folder = data_folder(table).removeprefix("s3://").partition("/")
    client = _client(storage)
    for name in names.values():
        upload = client.create_multipart_upload(Bucket=bucket, Key=f"{folder}/{name}")
        client.upload_part(
            Bucket=bucket, Key=f"{folder}/{name}", UploadId=upload["UploadId"], PartNumber=1, Body=b"x" * (5 << 20)
        )

    def left() -> set[str]:
        found = client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
        return {one["Key"].rsplit("/", 1)[-1] for one in found}

    def swept(remove: bool) -> SweptTable:
        session = lake.session()
        session.control = FakeControl(name=CONTROL.topic, topic_id=CONTROL.topic_id)
        (found,) = sweep(session, older_than=timedelta(0), remove=remove)
        assert found.error == ""
        return found

    assert Why.UPLOAD.value not in swept(remove=True).found, "an upload may be under way for a day"
    assert left() == set(names.values())
    monkeypatch.setattr(sweeps, "COMMIT_AGE", timedelta(0))
    assert swept(remove=False).found[Why.UPLOAD.value] == (1, 5 << 20)
    assert left() == set(names.values())
    assert swept(remove=True).removed_bytes >= 5 << 20
    assert left() == {names["other"], names["foreign"]}
    check(lake)


def test_an_upload_that_ends_during_a_sweep_is_passed_over(storage: dict[str, str]) -> None:
    """A running task finishes it, or another sweep aborts it; that is no lack of rights."""
    client, uploads = _client(storage), UnfinishedUploads(storage["warehouse"], storage)
    bucket, _, folder = storage["warehouse"].removeprefix("s3://").partition("/")
    keys = [f"{folder}/{name}" for name in ("a", "b", "c")]
    ids = {key: client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in keys}
    found = uploads.walk()
    first = next(found).path
    second, third = (key for key in keys if key != first)
    for key in (first, second):
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=ids[key])
    assert not uploads.abort(first)
    assert [file.path for file in found] == [third], "the second one was listed, and has no parts to count"
    assert uploads.abort(third)


def test_uploads_that_cannot_be_listed_are_an_error(storage: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**storage, "s3.secret-access-key": "wrong-wrong-wrong"}
    uploads = UnfinishedUploads(storage["warehouse"], wrong)
    with pytest.raises(StorageError, match="LC7718") as refused:
        list(uploads.walk())
    assert "wrong-wrong-wrong" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "boto3", None)
    unknown = UnfinishedUploads(storage["warehouse"], storage)
    assert unknown.unknown
    assert list(unknown.walk()) == []


def test_the_doctors_file_is_written_read_and_deleted(lake: RowsLake) -> None:
    table = lake.load()
    assert try_storage(table.io, probe_path(table)) == ""


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_small_file_is_one_put(lake: RowsLake, proxy: FaultyProxy, capsys: pytest.CaptureFixture[str]) -> None:
    lake.land(*WINDOWS[0])
    with proxy.counting() as requests:
        (file,) = lake.written((0, 60, 70))
    of_file = [a for a in requests if file.file_path.rsplit("/", 1)[-1] in a.path]
    assert [a.method for a in of_file] == ["HEAD", "PUT"]
    one = lake.slice(*WINDOWS[1], epoch=epoch(lake))
    with proxy.counting() as requests:
        assert lake.publish(lake.request(one)).published
    with capsys.disabled():
        print(f"\na data file: {counts(of_file)}; a commit: {counts(requests)}, {len(requests)} in all")
    assert not any("uploads" in a.path for a in requests)
    assert len(requests) <= 12


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "windows"),
    [({"slow_down": 0.3}, 3), ({"slow_down": 0.5}, 2), ({"cut": 0.1}, 6), ({"slow_down": 0.1, "cut": 0.1}, 6)],
    ids=["30%-503", "50%-503", "10%-cut", "10%-503-10%-cut"],
)
def test_rows_are_in_the_table_once_though_requests_fail(
    lake: RowsLake, proxy: FaultyProxy, faults: dict[str, float], windows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with proxy.counting() as requests, proxy.failing(**faults):
        for window in WINDOWS[:windows]:
            lake.land(*window)
    with capsys.disabled():
        print(f"\n{faults}: {windows} landings in {time.monotonic() - began:.1f} s, {counts(requests)}")
    assert counts(requests).keys() & {"0", "503"}
    for window in WINDOWS[windows:]:
        lake.land(*window)
    check(lake)


@pytest.mark.parametrize("seconds", [3, 40])
def test_a_landing_outlives_a_server_that_is_away(lake: RowsLake, server: S3Server, seconds: int) -> None:
    lake.land(*WINDOWS[0])
    server.kill()
    restart = Timer(seconds, server.start)
    restart.start()
    try:
        for window in WINDOWS[1:]:
            lake.land(*window)
    finally:
        restart.join()
    check(lake)


def test_nothing_is_committed_while_the_server_is_away(
    lake: RowsLake, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(*WINDOWS[0])
    one, head = lake.slice(*WINDOWS[1], epoch=epoch(lake)), lake.load().metadata.current_snapshot_id
    monkeypatch.setattr(arrow_io, "ATTEMPTS", 2)
    server.kill()
    with pytest.raises(OSError, match="AWS Error"):
        lake.written((0, 60, 70))
    with pytest.raises((LakecommitError, OSError)):
        lake.publish(lake.request(one))
    server.start()
    assert lake.load().metadata.current_snapshot_id == head
    assert lake.publish(lake.request(one)).published
    for window in WINDOWS[2:]:
        lake.land(*window)
    check(lake)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 12 << 20], ids=["one-put", "multipart"])
@pytest.mark.parametrize("code", ["ExpiredToken", "AccessDenied", "SlowDown"])
def test_a_refused_write_raises_and_leaves_no_object(
    storage: dict[str, str], proxy: FaultyProxy, server: S3Server, monkeypatch: pytest.MonkeyPatch, code: str, size: int
) -> None:
    monkeypatch.setattr(arrow_io, "ATTEMPTS", 2)
    faults = {"slow_down": 1.0} if code == "SlowDown" else {"refused": code}
    io, place = GuardedFileIO(storage), f"{storage['warehouse']}/one"
    with proxy.failing(**faults), pytest.raises(OSError, match="AWS Error") as error:
        put(io, place, b"x" * size)
    text = trouble_of(io, error.value)
    assert f"; {code}: " in text
    assert storage["s3.secret-access-key"] not in text
    assert not list(server.bucket.rglob("one"))


def test_a_refused_read_has_its_remedy(storage: dict[str, str], proxy: FaultyProxy) -> None:
    io = GuardedFileIO(storage)
    with proxy.failing(refused="ExpiredToken"), pytest.raises(OSError, match="AWS Error") as error:
        io.new_input(f"{storage['warehouse']}/one").open()
    assert "; HTTP 403: the keys have expired (ExpiredToken) or may not use" in trouble_of(io, error.value)


def test_a_missing_bucket_is_an_error_of_the_close(storage: dict[str, str]) -> None:
    io = GuardedFileIO(storage)
    out = io.new_output("s3://absent/one").create(overwrite=False)
    out.write(b"x")
    with pytest.raises(OSError, match="NO_SUCH_BUCKET") as error:
        out.close()
    assert "; NoSuchBucket: create the bucket" in trouble_of(io, error.value)


def test_an_object_that_exists_is_not_overwritten(storage: dict[str, str]) -> None:
    output = GuardedFileIO(storage).new_output(f"{storage['warehouse']}/one")
    with output.create(overwrite=False) as out:
        out.write(b"first")
    with pytest.raises(FileExistsError):
        output.create(overwrite=False)
    with output.to_input_file().open() as found:
        assert found.read() == b"first"


def test_a_data_file_that_cannot_be_put_raises(
    lake: RowsLake, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails after the writer has opened the file: what is left to fail is its close."""
    closing = OpenFile.close

    def refused(file: OpenFile, *args: Any) -> Any:
        with proxy.failing(refused="ExpiredToken"):
            return closing(file, *args)

    monkeypatch.setattr(OpenFile, "close", refused)
    with pytest.raises(OSError, match="ExpiredToken"):
        lake.written(*WINDOWS[0])


def test_manifests_that_cannot_be_put_commit_nothing(lake: RowsLake, proxy: FaultyProxy) -> None:
    lake.land(*WINDOWS[0])
    one, head = lake.slice(*WINDOWS[1], epoch=epoch(lake)), lake.load().metadata.current_snapshot_id
    with (
        proxy.failing(refused_puts="ExpiredToken"),
        pytest.raises(StorageError, match=r"ExpiredToken: renew the keys.*LC3030"),
    ):
        lake.publish(lake.request(one))
    assert lake.load().metadata.current_snapshot_id == head
    assert lake.publish(lake.request(one)).published
    for window in WINDOWS[2:]:
        lake.land(*window)
    check(lake)


# -- attempts ---------------------------------------------------------------------------------------------------------


def test_a_request_has_more_attempts_than_the_three_of_arrow(storage: dict[str, str], proxy: FaultyProxy) -> None:
    with proxy.failing(first=4), proxy.counting() as requests:
        put(GuardedFileIO(storage), f"{storage['warehouse']}/one", b"x")
    assert [a.status for a in requests] == [503] * 4 + [200]


def test_a_retry_strategy_of_the_connection_stays_in_force(storage: dict[str, str], proxy: FaultyProxy) -> None:
    named = f"{OneAttempt.__module__}.{OneAttempt.__qualname__}"
    io = GuardedFileIO({**storage, "s3.retry-strategy-impl": named})
    with proxy.failing(slow_down=1.0), proxy.counting() as requests, pytest.raises(OSError, match="SLOW_DOWN"):
        put(io, f"{storage['warehouse']}/one", b"x")
    assert [(a.method, a.status) for a in requests] == [("PUT", 503)]


def put(io: GuardedFileIO, place: str, content: bytes) -> None:
    with io.new_output(place).create(overwrite=True) as out:
        out.write(content)


def epoch(lake: RowsLake) -> UUID:
    own = lake.state().section("orders", LIVE)
    assert own is not None
    return own.epoch
