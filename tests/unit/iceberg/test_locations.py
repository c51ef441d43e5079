# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_provider_lakecommit.iceberg.file_io import location_problem

HOUSE = {"warehouse": "file:///srv/house"}
NAMED = {"warehouse": "house"}


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("file:///srv/house/t/x.avro", HOUSE),
        ("file:/srv/house/t/p=%2F/x.avro", HOUSE),
        ("/srv/house/t/x.avro", HOUSE),
        ("/srv/house/t/x.avro", {"warehouse": "/srv/house/"}),
        ("s3://bucket/x", NAMED),
        ("s3a://bucket/x", HOUSE),
        ("gs://bucket/x", {}),
        ("abfss://c@a.dfs.net/x", {"warehouse": "abfs://c@a.dfs.net"}),
        ("abfss://c@a.dfs.net/x", {"adls.account-name": "a"}),
        ("wasb://c@a.net/x", {"adls.sas-token.a.net": "s"}),
        ("hdfs://node/x", {"hdfs.host": "node"}),
        ("viewfs://node/x", {"warehouse": "hdfs://node/house"}),
    ],
)
def test_where_files_may_be(location: str, properties: dict[str, str]) -> None:
    assert location_problem(location, properties) is None


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("file:///etc/passwd", HOUSE),
        ("/etc/passwd", HOUSE),
        ("FILE:///etc/passwd", HOUSE),
        (" file:///etc/passwd", HOUSE),
        ("file://etc/passwd", HOUSE),
        ("file:///srv/house/../../etc/passwd", HOUSE),
        ("file:///srv/house/%2e%2e/%2e%2e/etc/passwd", HOUSE),
        ("file:///srv/household/x", HOUSE),
        ("file:///srv/house", HOUSE),
        ("etc/passwd", HOUSE),
        ("file:///srv/house/t/x", {}),
        ("file:///srv/house/t/x", NAMED),
        ("file:///srv/house/t/x", {"warehouse": "s3://bucket/house"}),
        ("file:///x", {"warehouse": "file:"}),
        ("abfss://c@a.dfs.net/x", HOUSE),
        ("abfss://c@a.dfs.net/x", {"adls.sas-token-expires-at-ms.a.net": "1"}),
        ("hdfs://node/x", HOUSE),
        ("hf://datasets/x", NAMED),
        ("http://169.254.169.254/x", NAMED),
        ("memory://x", NAMED),
        ("github://a:b@c/x", NAMED),
    ],
)
def test_where_no_file_is_opened(location: str, properties: dict[str, str]) -> None:
    assert location_problem(location, properties) is not None
