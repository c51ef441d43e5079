# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from airflow_provider_lakecommit.cycle.session.secrets import LEAST_SECONDS, secrets_for, vended_of
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.spark.job import WindowJob
from tests.fakes.lake import BY_BUCKET, SCHEMA
from tests.unit.hooks.test_spark import job

OWN = {"s3.region": "here"}
KAFKA = {"bootstrap.servers": "a:1"}


class Vendor(NoopCatalog):
    """Hands out a new key with each answer, another one for each table."""

    def __init__(self, more: Mapping[str, str]) -> None:
        super().__init__("vendor")
        self.more = more
        self.requests: list[str] = []
        self.handed_out: Mapping[str, str] | None = None

    def load_table(self, identifier: Any) -> Table:
        self.requests.append(identifier)
        if self.handed_out is not None:
            return self.table(identifier, self.handed_out)
        return self.table(identifier, {**OWN, "s3.session-token": f"{identifier} {len(self.requests)}", **self.more})

    def table(self, identifier: str, properties: Mapping[str, str]) -> Table:
        metadata = new_table_metadata(SCHEMA, BY_BUCKET, UNSORTED_SORT_ORDER, "s3://b/t")
        return Table((identifier,), metadata, "", load_file_io(dict(properties), "file:///x"), self)

    def close(self) -> None: ...


def job_of(written: tuple[str, ...], vended: tuple[str, ...], *, keys: bool = True) -> WindowJob:
    plan = job().plan
    return replace(
        job(), plan=replace(plan, slices=(replace(plan.slices[0], tables=written),), vended=dict.fromkeys(vended, keys))
    )


def vendor(**more: str) -> tuple[Vendor, Tables]:
    made = Vendor({key.replace("_", "-"): value for key, value in more.items()})
    return made, Tables(OWN, connect=lambda *_, **__: made)


def test_a_catalog_that_hands_out_nothing_is_not_requested() -> None:
    def connect(*_: object, **__: object) -> Vendor:
        raise AssertionError("asked")

    secrets = secrets_for(Tables(OWN, connect=connect), KAFKA, [job_of(("rows", "dead"), ())], log=print)
    assert (secrets.kafka, secrets.io, secrets.tables) == (KAFKA, OWN, {})


def test_each_table_gets_its_own_anew_each_time_and_only_those_that_are_written() -> None:
    made, tables = vendor()
    jobs = [job_of(("rows", "plain"), ("rows", "dead")), job_of(("rows", "dead"), ("rows", "dead"))]
    secrets = secrets_for(tables, KAFKA, jobs, log=print)
    assert made.requests == ["dead", "rows"]
    assert {name: storage.properties["s3.session-token"] for name, storage in secrets.tables.items()} == {
        "dead": "dead 1",
        "rows": "rows 2",
    }
    assert secrets.io_of("plain") == OWN
    assert secrets_for(tables, KAFKA, jobs[:1], log=print).io_of("rows") == {**OWN, "s3.session-token": "rows 3"}


def test_keys_that_are_about_to_expire_are_an_error_that_may_pass_and_reports_what_helps() -> None:
    soon = int((time.time() + LEAST_SECONDS / 2) * 1000)
    _, tables = vendor(**{"s3.session-token-expires-at-ms": str(soon)})
    with pytest.raises(CatalogError, match="LC6222") as caught:
        secrets_for(tables, KAFKA, [job_of(("rows",), ("rows",))], log=print)
    assert "rows 1" not in str(caught.value)


@pytest.mark.parametrize("keys", [True, False])
def test_a_catalog_that_is_away_is_missed_for_its_keys_and_not_for_settings_of_other_kinds(keys: bool) -> None:
    def connect(*_: object, **__: object) -> Vendor:
        raise ConnectionRefusedError("nobody is there")

    lines: list[str] = []
    tables, jobs = Tables(OWN, connect=connect), [job_of(("rows",), ("rows",), keys=keys)]
    if keys:
        with pytest.raises(CatalogError, match="LC3361"):
            secrets_for(tables, KAFKA, jobs, log=lines.append)
    else:
        assert secrets_for(tables, KAFKA, jobs, log=lines.append).io_of("rows") == OWN
        (line,) = lines
        assert line.startswith("table rows is written with only the storage properties of the connection: catalog")


def test_a_plan_names_tables_with_which_something_was_handed_out_and_of_keys_among_it() -> None:
    made, tables = vendor()
    tables.load("rows")
    made.handed_out = {**OWN, "s3.endpoint": "http://store"}
    tables.load("plain")
    made.handed_out = OWN
    tables.load("none")
    assert vended_of(tables, ("rows", "plain", "none", "never asked for")) == {"rows": True, "plain": False}
