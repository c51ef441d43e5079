# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.status.doctor.lake import vended

NOW = 1_700_000_000.0
KEYS = {"s3.session-token": "canary"}


def test_a_table_with_which_nothing_is_handed_out_has_no_finding() -> None:
    assert list(vended(TableStorage(properties=KEYS), "shop.orders", NOW)) == []


@pytest.mark.parametrize(
    ("left", "level", "message"),
    [
        (None, "ok", "does not report when they expire"),
        (3600, "ok", "expire in 3600 s, at 2023-11-14 23:13:20 UTC"),
        (600, "warn", "expire in 600 s"),
        (30, "FAIL", "expire in 30 s"),
    ],
)
def test_names_are_reported_and_how_long_they_hold(left: float | None, level: str, message: str) -> None:
    until = None if left is None else NOW + left
    storage = TableStorage(properties=KEYS, handed_out=("s3.session-token",), expires_at=until)
    (found,) = vended(storage, "shop.orders", NOW)
    assert (found.check, str(found.level)) == ("credentials of shop.orders", level)
    assert "s3.session-token" in found.observed
    assert message in found.observed
    assert "canary" not in found.observed + found.remedy


def test_a_catalog_that_wants_to_sign_each_request_is_warned_of() -> None:
    (found,) = vended(TableStorage(properties={}, signed=True), "shop.orders", NOW)
    assert str(found.level) == "warn"
    assert "vended-credentials" in found.remedy
