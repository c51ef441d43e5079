# SPDX-License-Identifier: Apache-2.0
"""Whoever writes a table's properties, or a catalog's answers, imports no code and reads no file of ours.

Each property by which pyiceberg imports a class, or opens a file, a profile or a socket, is set to a canary.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyiceberg.io
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.file_io import GuardedFileIO
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.iceberg.settings import client_settings, storage_settings
from airflow_provider_lakecommit.iceberg.storage import storage_of
from tests.fakes.lake import Lake, section
from tests.fakes.rest_server import RestServer, metadata

CANARY = "lakecommit_canary"
CLASS = f"{CANARY}.Thing"
IMPLEMENTATIONS = (
    "py-io-impl",
    "py-catalog-impl",
    "io-impl",
    "lakecommit.py-io-impl",
    "s3.retry-strategy-impl",
    "write.py-location-provider.impl",
    "auth.impl",
    "auth.manager",
    "s3.signer",
)
FILES = (
    "ssl",
    "ssl.cabundle",
    "client.profile-name",
    "s3.profile-name",
    "glue.profile-name",
    "dynamodb.profile-name",
    "hdfs.kerberos_ticket",
    "hdfs.host",
    "gcs.oauth2.token",
    "gcs.session-kwargs",
    "adls.connection-string",
    "adls.credential",
    "adls.account-name",
    "hf.token",
    "botocore_session",
)
REDIRECTS = (
    "oauth2-server-uri",
    "credential",
    "scope",
    "rest.sigv4-enabled",
    "s3.proxy-uri",
    "s3.role-arn",
    "client.role-arn",
    "gcs.service.host",
    "adls.account-host",
    "hf.endpoint",
    "header.Authorization",
    "snapshot-loading-mode",
    "scan-planning-mode",
    "warehouse",
    "type",
    "DEFAULT_SCHEME",
)
HOSTILE = {
    **dict.fromkeys(IMPLEMENTATIONS, CLASS),
    **dict.fromkeys(FILES, "/etc/passwd"),
    **dict.fromkeys(REDIRECTS, "x"),
}
ALLOWED_BY_SIGNING = {"s3.signer"}
"""Its value is looked up among pyiceberg's own signers and is imported by no client."""
AUTH = {"type": "custom", "impl": CLASS, "custom": {}}


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that may not be imported, whatever class of it is requested."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{CANARY}.py").write_text("class Thing:\n    def __init__(self, *a, **k): ...\n")
    monkeypatch.syspath_prepend(str(folder))
    yield
    assert sys.modules.pop(CANARY, None) is None, "the canary was imported"


def spoil(lake: Lake, **properties: str) -> None:
    """Set properties in the newest metadata file, as another engine would."""
    path = Path(lake.load().metadata_location.removeprefix("file://"))
    values = json.loads(path.read_text())
    values["properties"].update(properties)
    path.write_text(json.dumps(values))


def test_pyiceberg_itself_would_import_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    spoil(lake, **{"py-io-impl": CLASS})
    load_catalog("lakecommit", **lake.catalog_properties).load_table(lake.name)
    assert sys.modules.pop(CANARY).Thing


@pytest.mark.heavy(
    but=("warehouse", "oauth2-server-uri", "py-io-impl", "py-catalog-impl", "DEFAULT_SCHEME", "hf.endpoint")
)
@pytest.mark.parametrize("key", sorted(HOSTILE))
def test_a_table_property_imports_and_changes_nothing_when_it_is_read_and_committed_to(
    tmp_path: Path, key: str
) -> None:
    lake = Lake(tmp_path)
    lake.create()
    spoil(lake, **{key: HOSTILE[key]})
    tables = Tables(lake.catalog_properties)
    table = tables.load(lake.name)
    assert isinstance(table.io, GuardedFileIO)
    for opened_with in (table.io.properties, tables.storage(lake.name).properties):
        assert HOSTILE[key] not in (v for k, v in opened_with.items() if k != "type")
    join_table(tables, lake.name, section(), retry_policy=lake.clock.retry_policy())
    after = tables.load(lake.name)
    assert after.properties[key] == HOSTILE[key]
    assert after.metadata.current_snapshot_id is not None


def test_a_commit_that_changes_properties_keeps_a_location_provider_without_importing_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    spoil(lake, **{"write.py-location-provider.impl": CLASS})
    tables = Tables(lake.catalog_properties)
    table = tables.load(lake.name)
    uuid = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    after = tables.commit(table, uuid, (SetPropertiesUpdate(updates={"a": "b"}),))
    assert {k: after.properties[k] for k in ("a", "write.py-location-provider.impl")} == {
        "a": "b",
        "write.py-location-provider.impl": CLASS,
    }


@pytest.mark.parametrize("where", ["defaults", "overrides"])
def test_a_servers_configuration_imports_nothing_and_redirects_no_credential(where: str) -> None:
    with RestServer(config={"defaults": {}, "overrides": {}, where: {**HOSTILE, "auth": AUTH}}) as server:
        own = {"type": "rest", "credential": "me:secret", "warehouse": "house"}
        own["oauth2-server-uri"] = f"{server.uri}/own/tokens"
        tables = Tables({**own, "uri": server.uri})
        catalog = tables.catalog
        given = {k: v for k, v in catalog.properties.items() if k not in ("py-io-impl", "lakecommit.py-io-impl")}
        assert {k for k in given if k not in (*own, "uri")} <= ALLOWED_BY_SIGNING
        assert {k: given[k] for k in own} == own
        tables.load("a.t")
    assert [path for path in server.requests if "token" in path] == ["/own/tokens"] * 2


@pytest.mark.parametrize("where", ["config", "credentials", "properties"])
def test_an_answer_about_a_table_imports_nothing_on_load_or_commit_and_gives_tasks_nothing_hostile(where: str) -> None:
    good = {
        "s3.endpoint": "http://store",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "s",
        "s3.session-token": "t",
    }
    hostile: dict[str, Any] = {**HOSTILE, **good}
    table: dict[str, Any] = {"metadata-location": "s3://bucket/m.json", "metadata": metadata()}
    if where == "config":
        table["config"] = {**hostile, "auth": AUTH}
    elif where == "credentials":
        table["storage-credentials"] = [{"prefix": "s3://", "config": hostile}]
    else:
        table["metadata"] = metadata(hostile)
    with RestServer(table=table) as server:
        tables = Tables({"type": "rest", "uri": server.uri, "s3.region": "here"})
        found = tables.load("a.t")
        tables.commit(found, (), ())
        storage = tables.storage("a.t").properties
    handed_out = {} if where == "properties" else good
    assert storage == {"s3.region": "here", **handed_out}
    assert storage_of(found, {}).properties == handed_out | ({"s3.region": "here"})
    file_io(storage).new_output("s3://bucket/t/data/x.parquet")


def test_every_property_of_pyicebergs_storages_is_decided_on() -> None:
    """A new one of a later pyiceberg has to be added here: to the allowed ones, or to these."""
    known = {v for v in vars(pyiceberg.io).values() if isinstance(v, str) and v.startswith(OF_STORAGE)}
    allowed = {key for key in known if storage_settings({key: "ya29.x"})}
    assert known - allowed == DROPPED
    assert storage_settings({key: {"nested": 1} for key in known}) == {}
    assert client_settings({"prefix": "p", "uri": 1, "auth": "x", "s3.anonymous": True}) == {
        "prefix": "p",
        "uri": "1",
        "s3.anonymous": "true",
    }


OF_STORAGE = ("client.", "s3.", "hdfs.", "adls.", "gcs.", "hf.", "py-")
DROPPED = {
    "adls.account-host",
    "adls.account-key",
    "adls.account-name",
    "adls.anon",
    "adls.blob-storage-authority",
    "adls.blob-storage-scheme",
    "adls.client-id",
    "adls.client-secret",
    "adls.connection-string",
    "adls.credential",
    "adls.dfs-storage-authority",
    "adls.dfs-storage-scheme",
    "adls.tenant-id",
    "adls.token",
    "client.profile-name",
    "client.role-arn",
    "client.role-session-name",
    "gcs.access",
    "gcs.cache-timeout",
    "gcs.consistency",
    "gcs.default-bucket-location",
    "gcs.requester-pays",
    "gcs.service.host",
    "gcs.session-kwargs",
    "gcs.version-aware",
    "hdfs.host",
    "hdfs.kerberos_ticket",
    "hdfs.port",
    "hdfs.user",
    "hf.endpoint",
    "hf.token",
    "py-io-impl",
    "s3.profile-name",
    "s3.proxy-uri",
    "s3.resolve-region",
    "s3.retry-strategy-impl",
    "s3.role-arn",
    "s3.role-session-name",
}


def test_a_class_that_the_connection_names_is_used(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    tables = Tables({**lake.catalog_properties, "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
    assert type(tables.load(lake.name).io.new_output(f"file://{tmp_path}/warehouse/x")).__name__ == "FsspecOutputFile"
    assert tables.io_properties()["py-io-impl"] == "pyiceberg.io.fsspec.FsspecFileIO"


@pytest.mark.parametrize("place", ["file:///etc/passwd", "/etc/passwd", "hdfs://evil/x", "FILE:///etc/passwd"])
def test_a_table_that_points_to_a_file_elsewhere_is_a_table_error(tmp_path: Path, place: str) -> None:
    lake = Lake(tmp_path)
    lake.create()
    engine = lake.catalog.engine
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (place,))
    with pytest.raises(TableError, match="LC3316"):
        Tables(lake.catalog_properties).load(lake.name)


def test_a_file_elsewhere_that_the_metadata_log_names_is_not_deleted(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={"write.metadata.previous-versions-max": "1"})
    lake.create()
    victim = tmp_path / "victim"
    victim.write_text("stays")
    path = Path(lake.load().metadata_location.removeprefix("file://"))
    values = json.loads(path.read_text())
    values["metadata-log"] = [{"metadata-file": f"file://{victim}", "timestamp-ms": 1}]
    path.write_text(json.dumps(values))
    join_table(Tables(lake.catalog_properties), lake.name, section(), retry_policy=lake.clock.retry_policy())
    assert victim.read_text() == "stays"


def test_storage_without_a_catalog_is_what_its_files_are_opened_with() -> None:
    table: Any = SimpleNamespace(io=GuardedFileIO({"s3.region": "here"}), catalog=None, properties={})
    table.location = lambda: "s3://b/t"
    assert storage_of(table, {}).properties == {"s3.region": "here"}
