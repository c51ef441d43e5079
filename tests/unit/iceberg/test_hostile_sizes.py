# SPDX-License-Identifier: Apache-2.0
"""Answers and files that are made to take all memory: refused, or read within a bound.

Memory is measured in a process of its own, which does what a command does to a table.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.bounded import LENGTH_LIMIT, check_json
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.file_io import GuardedFileIO
from tests.fakes.lake import Lake
from tests.fakes.rest_server import MIB, RestServer, metadata, packed

MOST_MIB = 500
PARTS = 250_000
"""Commas and brackets that are just within the bound."""
CHILD = """
import json, re, sys
from pathlib import Path
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import catalog
# However slow this machine is.
catalog.ANSWER_SECONDS = 3600.0
try:
    catalog.Tables(json.loads(sys.argv[1])).load(sys.argv[2])
    said = "read"
except LakecommitError as e:
    said = f"{type(e).__name__}: {str(e)[:2000]}"
# The peak of this program alone: that of getrusage begins with the size of the process that started it.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps([said, int(peak[1]) // 1024]))
"""


def load(properties: dict[str, str], table: str) -> tuple[str, int]:
    """What loading a table gives, and the most memory that it took, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(properties), table], capture_output=True, text=True, check=True
    )
    result, peak = json.loads(done.stdout)
    return result, peak


def answer(**changes: Any) -> bytes:
    return json.dumps({"metadata-location": "s3://b/m.json", "metadata": {**metadata(), **changes}}).encode()


def endless() -> Iterable[bytes]:
    return [b"{", *([b" " * MIB] * 2048)]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "two gigabytes": (endless, ""),
    "a gzip of two gigabytes": (lambda: list(packed(2048 * MIB)), "gzip"),
    "a gzip in a gzip": (lambda: gzip.compress(b"".join(packed(512 * MIB))), "gzip, gzip"),
    "millions of values": (lambda: answer(x=[[]] * 2_000_000), ""),
    "many wide characters": (lambda: answer(x="x" * (60 * MIB)).replace(b"xx", "\U0001f600".encode(), 1), ""),
}
READ: dict[str, Callable[[], bytes]] = {
    "a long text": lambda: answer(properties={"a": "x" * (LENGTH_LIMIT - MIB)}),
    "many fields that are none": lambda: answer(schemas=[{"schema-id": 0, "fields": [{}] * (PARTS // 2)}]),
    "many snapshots that are none": lambda: answer(snapshots=[{}] * (PARTS // 2)),
    "many references": lambda: answer(
        refs={str(n): {"snapshot-id": n, "type": "tag"} for n in range(PARTS // 3)}, snapshots=[]
    ),
}


@pytest.mark.heavy(but=("millions of values",))
@pytest.mark.parametrize("case", REFUSED)
def test_an_answer_that_takes_too_much_memory_is_refused(case: str) -> None:
    made, encoding = REFUSED[case]
    with RestServer(table=made(), encoding=encoding) as server:
        result, peak = load({"type": "rest", "uri": server.uri}, "a.t")
    assert result.startswith("CatalogError")
    assert "/v1/namespaces/a/tables/t is not read" in result
    assert peak < MOST_MIB


@pytest.mark.heavy
@pytest.mark.parametrize("case", READ)
def test_the_largest_answers_that_are_read_take_bounded_memory(case: str) -> None:
    with RestServer(table=READ[case]()) as server:
        result, peak = load({"type": "rest", "uri": server.uri}, "a.t")
    assert "is not read" not in result
    assert peak < MOST_MIB


@pytest.mark.heavy
def test_a_configuration_that_is_too_large_is_refused() -> None:
    with RestServer(config=b'{"defaults": {}, "overrides": {"a": "' + b"x" * LENGTH_LIMIT + b'"}}') as server:
        result, peak = load({"type": "rest", "uri": server.uri}, "a.t")
    assert result.startswith("CatalogError")
    assert "/v1/config is not read" in result
    assert peak < MOST_MIB


@pytest.mark.heavy
@pytest.mark.parametrize("suffix", [".metadata.json", ".gz.metadata.json"])
@pytest.mark.parametrize("kind", ["long", "many"])
def test_metadata_files_are_bounded_too(tmp_path: Path, suffix: str, kind: str) -> None:
    lake = Lake(tmp_path)
    lake.create()
    path = tmp_path / "warehouse" / f"00009-x{suffix}"
    if suffix.startswith(".gz"):
        path.write_bytes(b"".join(packed(2048 * MIB)) if kind == "long" else gzip.compress(b"[" + b"1," * 3_000_000))
    elif kind == "long":
        with path.open("wb") as out:
            out.truncate(4096 * MIB)
    else:
        path.write_bytes(b"[" + b"1," * 3_000_000)
    with lake.catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{path}",))
    logged, peak = load(lake.catalog_properties, lake.name)
    assert logged.startswith("TableError")
    assert peak < MOST_MIB


def test_compressed_metadata_of_other_writers_is_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    before = Path(lake.create().metadata_location.removeprefix("file://"))
    path = before.with_name("00009-x.gz.metadata.json")
    path.write_bytes(gzip.compress(before.read_bytes()))
    with lake.catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{path}",))
    assert Tables(lake.catalog_properties).load(lake.name).schema() == lake.load().schema()


def test_a_file_is_read_by_parts_however_large_it_is_but_not_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.avro"
    with path.open("wb") as out:
        out.truncate(LENGTH_LIMIT + 1)
    with GuardedFileIO({"warehouse": str(tmp_path)}).new_input(str(path)).open() as stream:
        assert stream.seek(LENGTH_LIMIT) == LENGTH_LIMIT
        assert stream.read(10) == b"\0"
        stream.seek(0)
        with pytest.raises(TableError, match="LC3301"):
            stream.read()


@pytest.mark.heavy(but=("x", "*f600"))
@pytest.mark.parametrize("width", ["x", "é", "字", "\U0001f600"])
def test_a_text_counts_by_its_widest_character(width: str) -> None:
    most = LENGTH_LIMIT // {"x": 1, "é": 1, "字": 2, "\U0001f600": 4}[width]
    check_json(json.dumps(width, ensure_ascii=False).encode() + b" " * (most - 5000))
    with pytest.raises(ValueError, match="at most"):
        check_json(json.dumps(width, ensure_ascii=False).encode() + b" " * (most + 1))
