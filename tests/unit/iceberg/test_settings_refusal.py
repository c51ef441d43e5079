# SPDX-License-Identifier: Apache-2.0
"""Each mistake in a catalog's properties is reported by what fixes it, as pyiceberg and its drivers meet it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import NotInstalledError

from airflow_provider_lakecommit.exceptions import CatalogError, SpecError
from airflow_provider_lakecommit.iceberg import catalog_errors
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.catalog_errors import (
    missing_folder,
    mistake_in,
    wrong_database,
    wrong_warehouse,
)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"type": "hve", "uri": "thrift://h:1"},
            "unknown catalog type 'hve' (did you mean 'hive'?): use one of rest, hive, glue",
        ),
        ({"type": "sql", "uri": "postgres://me:no-word@db/x"}, "for PostgreSQL use postgresql+psycopg2://"),
        ({"type": "sql", "uri": "sqlite:/lake.db"}, "or sqlite:////folder/catalog.db (four slashes"),
        ({"type": "rest", "uri": "localhost:8181"}, "begins with http:// or https://, not with 'localhos'"),
        ({"type": "sql"}, "URI missing"),
    ],
)
def test_what_cannot_be_a_catalog_is_reported_by_what_it_should_be(properties: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Tables(properties, "lake").find("shop.orders")
    assert message in str(caught.value)
    assert "no-word" not in str(caught.value)
    assert "the properties given are: type" in str(caught.value)


def _lacking(module: str) -> Exception:
    error = NotInstalledError("SQLAlchemy support not installed: pip install 'pyiceberg[sql-postgres]'")
    error.__cause__ = ModuleNotFoundError(f"No module named {module!r}", name=module)
    return error


@pytest.mark.parametrize(
    ("properties", "missing", "message"),
    [
        (
            {"type": "sql", "uri": "postgresql+psycopg2://db/x"},
            "psycopg2",
            "psycopg2 is not installed: pip install 'airflow-provider-lakecommit[postgres]'",
        ),
        (
            {"type": "sql", "uri": "postgresql://db/x"},
            "psycopg",
            "postgresql:// needs psycopg, which is not installed: postgresql+psycopg2:// needs pip install "
            "'airflow-provider-lakecommit[postgres]'",
        ),
        ({"type": "glue"}, "boto3", "boto3 is not installed: pip install 'airflow-provider-lakecommit[glue]'"),
        ({"type": "hive"}, "thrift", "thrift is not installed: pip install 'airflow-provider-lakecommit[hive]'"),
        (
            {"type": "sql", "uri": "sqlite:////x.db"},
            "sqlalchemy",
            "sqlalchemy is not installed: pip install 'airflow-provider-lakecommit[sql-sqlite]'",
        ),
        (
            {"type": "sql", "uri": "mysql+pymysql://db/x"},
            "pymysql",
            "its driver, pymysql, is not installed: install it alongside this package",
        ),
        ({"type": "bigquery"}, "google", ""),
    ],
)
def test_what_is_not_installed_is_reported_by_the_extra_of_this_package(
    properties: dict[str, str], missing: str, message: str
) -> None:
    assert mistake_in(properties, _lacking(missing)) == message
    cause = _lacking(missing).__cause__
    assert isinstance(cause, ModuleNotFoundError)
    assert mistake_in(properties, cause) == message


def test_a_catalog_that_is_away_is_no_mistake() -> None:
    assert mistake_in({"type": "rest", "uri": "http://localhost:1"}, ConnectionError("refused")) is None
    with pytest.raises(CatalogError, match="LC3361"):
        Tables({"type": "rest", "uri": "http://127.0.0.1:1"}, "lake").find("shop.orders")


def test_a_database_in_a_folder_that_is_not_there_is_away_and_reports_it(tmp_path: Path) -> None:
    message = missing_folder({"type": "sql", "uri": f"sqlite:///{tmp_path}/lake/catalog.db"})
    assert message == (
        f"`uri` names the database {tmp_path}/lake/catalog.db, but folder {tmp_path}/lake does not exist: restore it, "
        "or fix the path"
    )
    relative = missing_folder({"type": "sql", "uri": "sqlite:///no_such_folder/catalog.db"})
    assert "(an absolute path has four slashes before it)" in relative
    for uri in (f"sqlite:///{tmp_path}/catalog.db", "sqlite:///:memory:", "sqlite://", "postgresql+psycopg2://h/d"):
        assert missing_folder({"type": "sql", "uri": uri}) == ""
    with pytest.raises(CatalogError, match="LC3361"):
        Tables({"type": "sql", "uri": f"sqlite:///{tmp_path}/lake/catalog.db"}, "lake").find("shop.orders")


def test_a_database_path_at_which_there_can_be_none_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database")
    (tmp_path / "folder").mkdir()
    for path, message in (
        ("notes.txt", "which is not a SQLite database"),
        ("folder", "name a file in it"),
        ("notes.txt/catalog.db", "a file and not a folder"),
    ):
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/{path}", "warehouse": f"file://{tmp_path}/w"}
        assert message in wrong_database(properties)
        with pytest.raises(SpecError, match="LC3381"):
            Tables(properties, "lake").find("shop.orders")
    for uri in (f"sqlite:///{tmp_path}/new.db", "sqlite:///:memory:", "sqlite://", "postgresql+psycopg2://h/d"):
        assert wrong_database({"type": "sql", "uri": uri}) == ""
    (tmp_path / "empty.db").touch()
    assert wrong_database({"type": "sql", "uri": f"sqlite:///{tmp_path}/empty.db"}) == ""


def test_a_location_that_this_user_cannot_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests may run as root, to whom everything is allowed.
    monkeypatch.setattr(catalog_errors.os, "access", lambda path, _: Path(path) != tmp_path)
    assert f"cannot write {tmp_path}" in wrong_database({"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    assert f"cannot write {tmp_path}" in wrong_warehouse({"type": "sql", "warehouse": f"file://{tmp_path}/a/b"})


def test_a_warehouse_in_a_file_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    for stated in (f"file://{tmp_path}/lake", f"{tmp_path}/lake/deeper"):
        assert f"{tmp_path}/lake is a file" in wrong_warehouse({"type": "sql", "warehouse": stated})
    for stated in (f"file://{tmp_path}/new/folder", "s3://bucket/lake", "", f"file://{tmp_path}"):
        assert wrong_warehouse({"type": "sql", "warehouse": stated}) == ""
    assert wrong_warehouse({"type": "rest", "warehouse": f"{tmp_path}/lake"}) == ""
