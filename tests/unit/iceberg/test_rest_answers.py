# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pydantic
import pytest
import requests
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import NoSuchTableError

from airflow_provider_lakecommit.iceberg.catalog_errors import denies, is_no_answer


def answered(body: bytes) -> NoSuchTableError:
    """As pyiceberg raises it for an answer 404."""
    response = requests.Response()
    response.status_code = 404
    response._content = body
    error = NoSuchTableError("no")
    error.__cause__ = requests.HTTPError(response=response)
    return error


def test_a_catalog_that_is_no_rest_catalog_is_trusted() -> None:
    assert denies(NoSuchTableError("no"))


@pytest.mark.parametrize(
    ("body", "own"),
    [
        (b'{"error": {"message": "Table does not exist", "type": "NoSuchTableException", "code": 404}}', True),
        (b'{"error": {"message": "no"}}', True),
        (b'{"error": "Not Found", "path": "/v1/x"}', False),
        (b'{"message": "no Route matched with those values"}', False),
        (b"[]", False),
        (b"<html>404</html>", False),
        (b"", False),
    ],
)
def test_a_404_is_the_catalogs_own_if_it_looks_like_one(body: bytes, own: bool) -> None:
    assert denies(answered(body)) is own


@pytest.mark.parametrize(
    ("body", "none"),
    [
        ("<html>", True),
        ('{"metadata": {"form', True),
        ('{"hello": "world"}', True),
        ("{}", True),
        ('{"metadata": {"format-version": 99}}', False),
        ('{"metadata": {"format-version": 2}}', False),
    ],
)
def test_an_answer_without_metadata_is_none(body: str, none: bool) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        TableResponse.model_validate_json(body)
    assert is_no_answer(caught.value) is none


def test_a_metadata_file_that_cannot_be_read_is_no_matter_of_answers() -> None:
    class TableMetadata(pydantic.BaseModel):
        location: str

    with pytest.raises(pydantic.ValidationError) as caught:
        TableMetadata.model_validate_json("{")
    assert not is_no_answer(caught.value)
