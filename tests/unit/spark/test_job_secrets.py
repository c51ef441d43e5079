# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a job are given, how it travels, and what of it a task tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.spark.job import Secrets, SliceStatus
from airflow_provider_lakecommit.spark.task import run_task
from tests.unit.hooks.test_spark import job

CANARY = "canary-77aa01"
SECRETS = Secrets(
    kafka={"bootstrap.servers": "127.0.0.1:1", "sasl.password": "of-kafka"},
    io={"s3.region": "here", "s3.secret-access-key": "of-connection"},
    tables={
        "shop.orders": TableStorage(properties={"s3.session-token": CANARY}, expires_at=1_700_000_000.0),
        "shop.dead": TableStorage(properties={"s3.session-token": "of-dead"}),
    },
)


def test_they_survive_a_file(tmp_path: Path) -> None:
    Secrets.save_together(tmp_path / "secrets.json", [SECRETS])
    assert Secrets.load_together(str(tmp_path / "secrets.json")) == [SECRETS]
    assert CANARY not in repr(SECRETS)


def test_a_table_has_its_own_or_the_connections() -> None:
    assert SECRETS.io_of("shop.orders") == {"s3.session-token": CANARY}
    assert SECRETS.io_of("shop.dead") == {"s3.session-token": "of-dead"}
    assert SECRETS.io_of("shop.else") == SECRETS.io


def test_what_has_expired_is_reported_by_table_and_time() -> None:
    tables = ("shop.orders", "shop.dead", "shop.else")
    assert SECRETS.expired(tables, 1_699_999_999.0) == ""
    assert SECRETS.expired(tables, 1_700_000_000.0) == (
        "the storage credentials that the catalog handed out for shop.orders expired at 2023-11-14 22:13:20 UTC"
    )
    assert SECRETS.expired(("shop.dead",), 2e9) == ""


def test_every_secret_is_struck_out_of_a_text() -> None:
    text = f"{CANARY} of-dead of-connection of-kafka here"
    assert SECRETS.without(text) == "*** *** *** *** here"


def test_a_slice_whose_keys_have_expired_is_not_begun_and_reports_what_helps(capfd: pytest.CaptureFixture[str]) -> None:
    result = run_task(job(), SECRETS, 0)
    assert result.status is SliceStatus.AGAIN
    assert (
        "shop.orders expired at 2023-11-14 22:13:20 UTC, before this slice was begun: the next attempt" in result.detail
    )
    assert "max_records" in result.detail
    assert CANARY not in result.detail + "".join(capfd.readouterr())
