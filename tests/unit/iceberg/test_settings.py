# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import UnauthorizedError

from airflow_provider_lakecommit.exceptions import CatalogError, SpecError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.settings import as_text, for_client
from airflow_provider_lakecommit.redaction import secrets_in

CANARY = "hunter2-canary"
AUTH = {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": CANARY}}


def test_mappings_come_out_as_they_went_in_and_all_else_is_text() -> None:
    stated = {"uri": "https://x", "auth": AUTH, "ssl": {"cabundle": "/ca.pem"}, "pool": 3, "echo": False}
    text = as_text(stated)
    assert all(isinstance(value, str) for value in text.values())
    assert as_text(text) == text
    assert for_client(text) == {**stated, "pool": "3", "echo": "False"}


@pytest.mark.parametrize("value", ["basic", "[1]", '{"type":'])
def test_what_is_no_mapping_is_an_error_of_the_spec(value: str) -> None:
    with pytest.raises(SpecError, match="LC3308"):
        assert Tables({"auth": value}).catalog


def test_secrets_are_found_inside_of_mappings_and_of_credentials() -> None:
    text = as_text({"auth": AUTH, "credential": "me:s3cret", "s3.region": "eu", "token": ""})
    assert secrets_in(text) == (CANARY, "me:s3cret", "s3cret")


@pytest.mark.parametrize("properties", [{"auth": AUTH}, {"auth": json.dumps(AUTH)}, {"credential": f"me:{CANARY}"}])
def test_no_message_shows_them(properties: dict[str, object]) -> None:
    def connect(*_: object, **__: object) -> Catalog:
        raise UnauthorizedError(f"{CANARY} is wrong")

    with pytest.raises(CatalogError) as caught:
        assert Tables(properties, connect=connect).catalog
    assert CANARY not in str(caught.value)
