# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from airflow_provider_lakecommit.iceberg.rest_client import RestClient
from airflow_provider_lakecommit.iceberg.storage import (
    TableStorage,
    best_for,
    clock,
    data_folder,
    expiry,
    merged,
    storage_of,
    trouble_of,
)
from tests.fakes.lake import BY_BUCKET, SCHEMA

CANARY = "hunter2-canary"
OWN = {"s3.region": "here", "warehouse": "lake"}


def keys(name: str) -> dict[str, str]:
    return {"s3.access-key-id": f"{name}-id", "s3.secret-access-key": f"{name}-secret", "s3.session-token": name}


def test_where_nothing_is_handed_out_the_connections_own_are_all_there_is() -> None:
    of_catalog = {**OWN, "uri": "http://x", "token": CANARY, "credential": CANARY, "auth.manager": object()}
    assert merged(OWN, of_catalog) == TableStorage(properties=OWN)


def test_what_is_handed_out_wins_and_is_named_and_nothing_of_the_catalog_itself_goes_along() -> None:
    storage = merged(OWN, {**OWN, "uri": "http://x", "token": CANARY, **keys("t"), "s3.region": "there"})
    assert storage.properties == {**OWN, **keys("t"), "s3.region": "there"}
    assert storage.handed_out == ("s3.access-key-id", "s3.region", "s3.secret-access-key", "s3.session-token")


def test_a_class_to_be_loaded_is_only_taken_from_the_connection() -> None:
    assert merged({}, {"py-io-impl": "os.system", "warehouse": "x"}) == TableStorage(properties={})
    assert merged({"py-io-impl": "mine.IO"}, {"py-io-impl": "theirs.IO"}).properties == {"py-io-impl": "mine.IO"}


@pytest.mark.parametrize(
    "settings", [{"s3.signer": "S3V4RestSigner", "s3.signer.uri": "http://x"}, {"s3.remote-signing-enabled": "true"}]
)
def test_signing_by_the_catalog_is_left_out_and_reported_where_there_are_no_keys(settings: dict[str, str]) -> None:
    assert merged(OWN, {**OWN, **settings}) == TableStorage(properties=OWN, signed=True)
    with_keys = merged(OWN, {**OWN, **settings, **keys("t")})
    assert (with_keys.signed, set(with_keys.properties)) == (False, {*OWN, *keys("t")})
    assert not merged(OWN, {**OWN, "s3.remote-signing-enabled": "false"}).signed


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({}, None),
        ({"s3.session-token": "t"}, None),
        ({"s3.session-token-expires-at-ms": "1700000000500"}, 1_700_000_000.5),
        ({"gcs.oauth2.token-expires-at": "1700000000000"}, 1_700_000_000.0),
        ({"adls.sas-token-expires-at-ms.lake.dfs.core.windows.net": "1700000000000"}, 1_700_000_000.0),
        ({"s3.session-token-expires-at-ms": "1800000000000", "gcs.oauth2.token-expires-at": "1700000000000"}, 1.7e9),
        ({"s3.session-token-expires-at-ms": "tomorrow"}, None),
    ],
)
def test_the_first_to_expire_counts_and_what_is_no_time_does_not(settings: dict[str, str], at: float | None) -> None:
    assert expiry(settings) == at
    assert merged({}, settings).expires_at == at


def test_how_long_they_hold() -> None:
    assert TableStorage(properties={}).left(0.0) is None
    assert TableStorage(properties={}, expires_at=90.0).left(30.0) == 60.0
    assert clock(1_700_000_000.4) == "2023-11-14 22:13:20 UTC"


def test_no_value_is_printed_and_those_that_are_secret_are_known() -> None:
    storage = merged(
        {},
        {
            **keys(CANARY),
            "adls.sas-token.lake.dfs.core.windows.net": "sig",
            "s3.session-token-expires-at-ms": "1700000000000",
            "client.refresh-credentials-endpoint": "v1/credentials",
            "gcs.oauth2.refresh-credentials-enabled": "true",
            "s3.endpoint": "http://store",
        },
    )
    assert CANARY not in repr(storage)
    assert storage.secrets == (f"{CANARY}-secret", f"{CANARY}-id", CANARY, "sig")
    assert TableStorage.from_dict(storage.to_dict()) == storage


# -- the credential of the data files ----------------------------------------------------------------------------------


def test_the_longest_prefix_counts() -> None:
    credentials = [("s3://", {"a": "1"}), ("s3://b/t/data", {"a": "2"}), ("s3://b/t/", {"a": "3"}), ("gs://", {})]
    assert best_for("s3://b/t/data", credentials) == {"a": "2"}
    assert best_for("s3://b/t/else", credentials) == {"a": "3"}
    assert best_for("s3://b/t", credentials) == {"a": "3"}
    assert best_for("abfs://x", credentials) is None


class Answered:
    """A client of a REST catalog that has no server: made of its own way from an answer to a table."""

    def __init__(self, **properties: str) -> None:
        self.catalog = RestClient.__new__(RestClient)
        self.catalog.name, self.catalog.properties, self.catalog._auth_manager = "x", properties, None

    def table(
        self,
        credentials: dict[str, dict[str, str]],
        config: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
    ) -> Table:
        metadata: TableMetadata = new_table_metadata(
            SCHEMA, BY_BUCKET, UNSORTED_SORT_ORDER, "s3://b/t", properties=properties or {}
        )
        answer: Any = SimpleNamespace(
            metadata=metadata,
            metadata_location="s3://b/t/metadata/0.json",
            config=config or {},
            storage_credentials=[StorageCredential(prefix=p, config=c) for p, c in credentials.items()],
        )
        return self.catalog._response_to_table(("a", "t"), answer)


def test_data_files_get_the_credential_of_their_folder_and_metadata_files_theirs() -> None:
    client = Answered(**{"s3.region": "here", "uri": "http://x"})
    table = client.table(
        {"s3://b/t/metadata": keys("meta"), "s3://b/t/data": keys("data"), "s3://b": keys("all")},
        config={"s3.endpoint": "http://store", "s3.access-key-id": "weaker"},
    )
    storage = storage_of(table, {"s3.region": "here"})
    assert storage.properties == {"s3.region": "here", "s3.endpoint": "http://store", **keys("data")}
    assert table.io.properties["s3.session-token"] == "meta"
    # The answer about the next table has none, and those of the one before are not its.
    assert storage_of(client.table({}), {"s3.region": "here"}).handed_out == ()


def test_a_folder_of_its_own_gets_its_own_credential_and_without_one_what_pyiceberg_picks() -> None:
    client = Answered()
    elsewhere = {"write.data.path": "s3://elsewhere/t/"}
    table = client.table({"s3://b/": keys("b"), "s3://elsewhere/": keys("e")}, properties=elsewhere)
    assert data_folder(table) == "s3://elsewhere/t"
    assert storage_of(table, {}).properties == keys("e")
    assert storage_of(client.table({"s3://b/": keys("b")}, properties=elsewhere), {}).properties == keys("b")


def test_a_client_without_credentials_gives_what_its_files_are_opened_with() -> None:
    table: Any = SimpleNamespace(io=load_file_io({**OWN, **keys("t")}, "file:///x"), catalog=None)
    table.properties, table.location = {}, lambda: "file:///x"
    assert storage_of(table, OWN).properties == {**OWN, **keys("t")}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "AWS Error UNKNOWN (HTTP status 403) during PutObject operation: Unable to parse ExceptionName: "
            "ExpiredToken",
            "ExpiredToken: renew",
        ),
        ("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate.", "SlowDown: try again"),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.", "SlowDown: try again"),
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: gone", "NoSuchBucket: create"),
        ("AWS Error ACCESS_DENIED during PutObject operation: Access Denied", "AccessDenied: allow"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "HTTP 403: the keys have expired"),
    ],
)
def test_an_error_of_s3_has_its_remedy(text: str, remedy: str) -> None:
    io = load_file_io({"s3.secret-access-key": CANARY})
    found = trouble_of(io, OSError(f"When uploading with {CANARY}: {text}"), with_path=False)
    assert found.startswith("OSError: When uploading")
    assert f"; {remedy}" in found
    assert CANARY not in found


@pytest.mark.parametrize(
    "error",
    [
        OSError("AWS Error NETWORK_CONNECTION during PutObject operation: no answer"),
        PermissionError(13, "Permission denied", "/srv/AccessDenied/x"),
        FileNotFoundError("s3://no-such-bucket/x"),
    ],
)
def test_another_error_has_none(error: OSError) -> None:
    assert trouble_of(load_file_io({}), error) == f"{type(error).__name__}: {error}"
