# SPDX-License-Identifier: Apache-2.0
"""Files below a folder, of a local disk and of an object store: all of them, once, with the storage's own times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import StorageError
from airflow_provider_lakecommit.operations.maintenance.listing import FileStore
from tests.rest.store import KeyedStore

NAMES = ["a.parquet", "data/b.parquet", "data/p=1/c%2F.parquet", "data/p=1/q=2/r=3/d.parquet", "metadata/e.avro"]


@pytest.fixture
def store() -> Iterator[KeyedStore]:
    with KeyedStore() as running:
        yield running


def properties(store: KeyedStore) -> Mapping[str, str]:
    return {**store.properties, **store.give("lake").properties}


def test_a_local_folder(tmp_path: Path) -> None:
    for n, name in enumerate(NAMES):
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * n)
        os.utime(path, (1000.0 + n, 1000.0 + n))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "f.parquet").write_bytes(b"")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "t" / "link.parquet").symlink_to(tmp_path / "t" / NAMES[0])
    files = FileStore(f"file://{tmp_path}/t", {"warehouse": str(tmp_path)})
    found = {os.path.relpath(f.path, tmp_path / "t"): (f.size, f.mtime_ns / 1e9) for f in files.walk()}
    assert found == {name: (n, 1000.0 + n) for n, name in enumerate(NAMES)}
    assert files.delete(str(tmp_path / "t" / NAMES[0]))
    assert not files.delete(str(tmp_path / "t" / NAMES[0]))


def test_an_object_store_page_by_page_and_with_its_own_clock(store: KeyedStore) -> None:
    given = properties(store)
    many = [f"data/{n:04d}.parquet" for n in range(2300)]
    for n, name in enumerate([*NAMES, *many]):
        whole = f"lake/t/{name}"
        store.objects[whole], store.written[whole] = b"x" * (n % 7), 1000.0 + n
    store.objects["lake/t2/other.parquet"] = b""
    files = FileStore("s3://lake/t", given)
    found = {f.path.removeprefix("lake/t/"): (f.size, f.mtime_ns / 1e9) for f in files.walk()}
    assert found == {name: (n % 7, 1000.0 + n) for n, name in enumerate([*NAMES, *many])}
    store.clock = lambda: 5e8
    assert files.now("asks.avro") == 5e8
    assert "lake/t/asks.avro" not in store.objects
    assert files.delete("lake/t/a.parquet")
    assert "lake/t/a.parquet" not in store.objects


def test_no_folder_has_no_files(tmp_path: Path, store: KeyedStore) -> None:
    store.objects["lake/other"] = b""
    assert list(FileStore(f"{tmp_path}/none", {"warehouse": str(tmp_path)}).walk()) == []
    assert list(FileStore("s3://lake/none", properties(store)).walk()) == []


def test_what_is_refused_is_reported_without_keys(store: KeyedStore) -> None:
    keys = store.give("lake")
    files = FileStore("s3://lake/t", {**store.properties, **keys.properties})
    store.end(keys)
    with pytest.raises(StorageError, match="LC7708") as raised:
        list(files.walk())
    assert not any(secret in str(raised.value) for secret in keys.values)
