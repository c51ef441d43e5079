# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from airflow_provider_lakecommit.exceptions import CatalogError, ClosedError, SpecError, TableError
from airflow_provider_lakecommit.iceberg.catalog import CREATED_TABLE_PROPERTIES, Tables
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from tests.fakes.lake import BY_BUCKET, SCHEMA, Lake
from tests.support.waiting import PATIENCE, until

CANARY = "hunter2-canary"


def refusing(error: Exception) -> Tables:
    def connect(*_: object, **__: object) -> Catalog:
        raise error

    properties = {"uri": f"postgresql://me:{CANARY}@db/x", "credential": f"id:{CANARY}", "s3.secret-access-key": CANARY}
    return Tables(properties, connect=connect)


def test_nothing_is_reached_before_it_is_needed() -> None:
    refusing(RuntimeError("connected")).io_properties()


def test_a_missing_table_is_an_error_with_a_remedy_for_data_and_dead_letters(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(TableError, match="LC3304"):
        lake.tables.load("shop.orders")
    assert lake.tables.find("shop.orders") is None


def test_a_catalog_that_is_away_is_a_catalog_error(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    lake.catalog.away = True
    with pytest.raises(CatalogError, match="LC3361"):
        lake.tables.load(lake.name)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "/lake/w"),
            "check that the storage of its tables has free space",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "check that the storage of its tables has free space"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "check that it is up and reachable"),
        (
            RuntimeError("(sqlite3.OperationalError) unable to open database file"),
            "check that the folder of its database",
        ),
        (RuntimeError("No default path is set, please specify a location"), "set `warehouse` there"),
    ],
)
def test_a_disk_that_is_full_or_not_there_is_no_catalog_that_is_away(error: Exception, remedy: str) -> None:
    with pytest.raises(CatalogError, match=rf"{remedy}.*LC3361"):
        assert refusing(error).catalog


def test_refused_credentials_are_reported_to_be_refused() -> None:
    with pytest.raises(CatalogError, match="LC3361"):
        assert refusing(UnauthorizedError("401")).catalog


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"could not connect to postgresql://me:{CANARY}@db/x"),
        UnauthorizedError(f"bad credential id:{CANARY}"),
        ValueError(f"{CANARY} is no key"),
    ],
)
def test_no_message_shows_a_secret(error: Exception) -> None:
    with pytest.raises((CatalogError, SpecError)) as caught:
        assert refusing(error).catalog
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__


def test_wrong_properties_are_a_spec_error() -> None:
    with pytest.raises(SpecError, match="LC3308"):
        assert Tables({"type": "nonsense", "warehouse": "x"}).catalog


def test_a_table_whose_metadata_is_missing_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create()
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(TableError, match="LC3305"):
        lake.tables.load(lake.name)


def test_a_type_that_pyiceberg_does_not_know_is_no_outage(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    metadata = Path(lake.create().metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"type":"string"', '"type":"variant"'))
    with pytest.raises(TableError, match="LC3306"):
        lake.tables.load(lake.name)


def test_a_created_table_is_bounded_and_is_found_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={"write.metadata.previous-versions-max": "7"})
    made = lake.create(BY_BUCKET)
    assert lake.create().metadata == made.metadata
    assert made.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert made.properties["write.metadata.previous-versions-max"] == "7"
    assert made.format_version == int(CREATED_TABLE_PROPERTIES["format-version"])
    assert [f.name for f in made.spec().fields] == ["id_bucket"]


@pytest.mark.parametrize(("warehouse", "refused"), [("house", True), ("./house", True), ("{}/house", False)])
def test_no_table_is_made_below_wherever_a_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str, refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": warehouse.format(tmp_path)}
    message = rf"`warehouse` '{warehouse}' is relative to .*as file://{tmp_path}/house or s3://"
    with pytest.raises(SpecError, match=rf"{message}.*LC3307") if refused else nullcontext():
        Tables(properties).create("shop.orders", SCHEMA)


def test_a_namespace_below_another_is_made(tmp_path: Path) -> None:
    lake = Lake(tmp_path, name="a.b.orders")
    assert lake.create().name() == ("a", "b", "orders")


def test_of_many_that_create_one_table_all_get_it(tmp_path: Path) -> None:
    lakes = [Lake(tmp_path) for _ in range(4)]
    barrier = threading.Barrier(len(lakes), timeout=PATIENCE)
    got: list[object] = []

    def create(lake: Lake) -> None:
        barrier.wait()
        try:
            got.append(lake.tables.create(lake.name, SCHEMA).metadata.table_uuid)
        except Exception as e:
            got.append(e)

    threads = [threading.Thread(target=create, args=(lake,)) for lake in lakes]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=PATIENCE)
    assert got == [lakes[0].load().metadata.table_uuid] * len(lakes)


def test_storage_properties_hold_nothing_of_the_catalog() -> None:
    tables = Tables({"uri": "x", "credential": "c", "token": "t", "s3.endpoint": "e", "warehouse": "w", "s3.region": 1})
    assert tables.io_properties() == {"s3.endpoint": "e", "warehouse": "w", "s3.region": "1"}


def table_of(properties: dict[str, str], config: dict[str, str] | None = None, location: str = "file:///t") -> Table:
    """A table as a catalog without settings of its own answers, with these properties of its files."""
    metadata = new_table_metadata(SCHEMA, BY_BUCKET, UNSORTED_SORT_ORDER, location)
    return Table(("a",), metadata, "", load_file_io(properties, "file:///t"), NoopCatalog("x"), config or {})


def test_what_a_catalog_hands_out_is_known_from_its_newest_answer_and_requested_anew() -> None:
    answers = [{}, {"s3.session-token": CANARY}, {"s3.session-token": "2"}, {}]
    own = {"s3.region": "here"}

    class Vendor(NoopCatalog):
        def load_table(self, _: object) -> Table:
            return table_of({**own, **answers.pop(0)})

        def close(self) -> None: ...

    tables = Tables(own, connect=lambda *_, **__: Vendor("x"))
    assert tables.known_storage("a") is None
    tables.load("a")
    assert tables.known_storage("a") == TableStorage(properties=own)
    assert tables.storage("a").properties == {**own, "s3.session-token": CANARY}
    assert tables.known_storage("b") is None
    assert CANARY not in tables.describe(OSError(f"403 for {CANARY}"))
    assert tables.storage("a").properties == {**own, "s3.session-token": "2"}
    assert tables.storage("a") == tables.known_storage("a") == TableStorage(properties=own)


class Clients:
    """Makes clients, each of which can be held in a call."""

    def __init__(self) -> None:
        self.made: list[Client] = []

    def connect(self, *_: object, **__: object) -> Client:
        self.made.append(Client(self))
        return self.made[-1]

    gate: threading.Event | None = None


class Client:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.properties: dict[str, str] = {}
        self.busy = threading.Lock()
        self.closed = False

    def load_table(self, _: str) -> Table:
        assert self.busy.acquire(blocking=False), "two calls at once"
        if self._clients.gate is not None:
            assert self._clients.gate.wait(60)
        self.busy.release()
        return table_of({})

    def close(self) -> None:
        self.closed = True


def test_calls_at_once_have_a_client_each_and_calls_one_after_the_other_the_same() -> None:
    clients = Clients()
    tables = Tables({}, connect=clients.connect)  # type: ignore[arg-type]
    for _ in range(3):
        tables.load("a")
    assert len(clients.made) == 1
    clients.gate = threading.Event()
    threads = [threading.Thread(target=tables.load, args=("a",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: sum(c.busy.locked() for c in clients.made) == 3, what="three calls at once")
    clients.gate.set()
    for thread in threads:
        thread.join(60)
    tables.load("a")
    assert len(clients.made) == 3
    tables.close()
    assert all(client.closed for client in clients.made)


def test_after_a_close_nothing_is_called_and_a_call_that_hung_lets_go_of_its_client() -> None:
    clients = Clients()
    clients.gate = threading.Event()
    tables = Tables({}, connect=clients.connect)  # type: ignore[arg-type]
    thread = threading.Thread(target=tables.load, args=("a",))
    thread.start()
    until(lambda: bool(clients.made) and clients.made[0].busy.locked(), what="the call")
    tables.close()
    assert not clients.made[0].closed
    clients.gate.set()
    thread.join(60)
    assert clients.made[0].closed
    with pytest.raises(ClosedError, match="LC3309"):
        tables.load("a")


def test_of_two_that_connect_to_a_new_database_at_once_the_slower_one_connects_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no tables and create them: the database refuses the second."""

    def create_after_another(catalog: SqlCatalog) -> None:
        SqlCatalogBaseTable.metadata.create_all(catalog.engine)
        SqlCatalogBaseTable.metadata.create_all(catalog.engine, checkfirst=False)

    monkeypatch.setattr(SqlCatalog, "create_tables", create_after_another)
    tables = Tables({"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()})
    assert tables.find("shop.orders") is None
    tables.close()
