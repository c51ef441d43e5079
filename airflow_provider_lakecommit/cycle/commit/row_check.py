# SPDX-License-Identifier: Apache-2.0
"""Run checks on the rows of a branch, by SQL in DuckDB or as Python functions.

Contract: a check sees two relations: ``added_rows``, the live rows of data files that ``main`` does not have, and
``all_rows``, all live rows of the branch. Position deletes apply to both. SQL refuses by each row that it returns. A
function is called with the DuckDB connection; it refuses by each item that it returns, or by an ``AssertionError``. SQL
reaches no file and no network. The added rows are read once; all rows are read by each check that names them.

Failure story: SQL that cannot be run, or a function that raises anything else, is a :class:`TableError` by name: such
a check has not passed. Neither has one that takes too long: its queries are interrupted. Rows under equality deletes of
another engine are refused.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.iceberg import DeletePositions, HeadReader, arrow_schema, live_blocks
from airflow_provider_lakecommit.landing import RowCheck

if TYPE_CHECKING:
    import duckdb

ADDED, ALL = "added_rows", "all_rows"
_SHOWN = 3
_MOST = 10_000
"""Wrong rows that are counted; a message says "at least" from there on."""
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    # Rows are read by the thread that asks.
    "threads": 1,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "1GiB",
}


class RowsToCheck:
    """The rows of a table as relations of a DuckDB connection.

    :param main_id: the head of ``main``, ``None`` if it has none
    :param head_id: the head of the branch
    """

    def __init__(self, name: str, table: Table, main_id: int | None, head_id: int | None) -> None:
        self.name, self._table = name, table
        reader = HeadReader(name)
        self._old = frozenset(reader.at(table, main_id).entries)
        self._head = reader.at(table, head_id)
        self._positions, self._opened = DeletePositions(name), ExitStack()
        snapshot = None if head_id is None else table.metadata.snapshot_by_id(head_id)
        schema = None if snapshot is None or snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
        self._schema = schema or table.schema()
        self.failure: LakecommitError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return the connection with both relations.

        :raises StorageError: the rows cannot be read
        """
        import duckdb

        spill = self._opened.enter_context(tempfile.TemporaryDirectory())
        connection = self._opened.enter_context(duckdb.connect(":memory:", config={**_ALONE, "temp_directory": spill}))
        connection.execute("set TimeZone = 'UTC'")
        added = [p for p in self._head.entries if p not in self._old]
        connection.register("reading", self._reader(added))
        with self.reading():
            connection.execute(f"create temp table {ADDED} as from reading")
        connection.unregister("reading")
        connection.register(ALL, _Rows(self))
        # Only now: the folder of what is spilled was to be known before.
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        return connection

    def reader(self) -> pa.RecordBatchReader:
        """Return all rows of the branch."""
        return self._reader(self._head.entries)

    def _reader(self, paths: Iterable[str]) -> pa.RecordBatchReader:
        arrow = arrow_schema(self._schema)
        expected = pa.schema([f.remove_metadata() for f in arrow])
        return pa.RecordBatchReader.from_batches(expected, self._batches(paths, arrow, expected))

    def _batches(self, paths: Iterable[str], arrow: pa.Schema, expected: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for path in paths:
                for block in self._blocks(path, arrow):
                    yield from block.cast(expected).to_batches()
        except LakecommitError as e:
            # DuckDB would only hand on its text.
            self.failure = e
            raise

    def _blocks(self, path: str, arrow: pa.Schema) -> Iterator[pa.Table]:
        entry = self._head.entries[path]
        if (delete := self._head.deletes.equality_of(entry, self._table.specs())) is not None:
            raise TableError(
                "LC6251",
                f"{self.name}: rows cannot be checked, as equality delete file {delete.file_path} of another engine "
                "applies to them: have that engine rewrite its data files",
            )
        dead = self._positions.of(self._table, entry.data_file, self._head.deletes.of(entry))
        return live_blocks(self._table, entry.data_file, dead, self._schema, arrow)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise what kept rows from being read, instead of DuckDB's text of it."""
        try:
            yield
        except Exception:
            if self.failure is not None:
                raise self.failure from None
            raise


class _Rows:
    """All rows, read anew by each scan."""

    def __init__(self, rows: RowsToCheck) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.reader().__arrow_c_stream__(requested_schema)


def wrong_rows(check: RowCheck, rows: RowsToCheck, limit: timedelta, log: Callable[[str], None]) -> str | None:
    """Return how many rows a check refuses, if any; the first ones are only logged, as the control topic keeps errors.

    :param limit: how long it may take
    :raises TableError: it cannot be run, or takes longer
    :raises StorageError: the rows cannot be read
    """
    with _interrupted_after(limit, rows.connection) as late:
        try:
            found = _by_sql(check, rows) if check.sql else _by_function(check, rows)
        except TableError as e:
            if not late.is_set():
                raise
            remedy = "make it faster, or increase `window.completion_timeout`"
            raise TableError("LC6255", f"{rows.name}: check {check.name} was ended after {limit}: {remedy}") from e
    if not found:
        return None
    many = f"{'at least ' if len(found) >= _MOST else ''}{len(found)} wrong {'row' if len(found) == 1 else 'rows'}"
    log(f"WARNING: {rows.name}, check {check.name}: {many}, as {', '.join(map(_text, found[:_SHOWN]))}")
    return f"{rows.name}, check {check.name}: {many}"


@contextmanager
def _interrupted_after(limit: timedelta, connection: duckdb.DuckDBPyConnection) -> Iterator[threading.Event]:
    """Interrupt the connection's queries from then on; the event is set when it has begun."""
    done, late = threading.Event(), threading.Event()

    def interrupt() -> None:
        while not done.wait(1.0 if late.is_set() else limit.total_seconds()):
            late.set()
            # Repeated, as it has no effect between two queries.
            connection.interrupt()

    watch = threading.Thread(target=interrupt, name="lakecommit-check", daemon=True)
    watch.start()
    try:
        yield late
    finally:
        done.set()
        watch.join()


def _by_sql(check: RowCheck, rows: RowsToCheck) -> Sequence[Any]:
    import duckdb

    try:
        with rows.reading():
            answer = rows.connection.execute(check.sql)
            names = [column[0] for column in answer.description or ()]
            return [dict(zip(names, row, strict=False)) for row in answer.fetchmany(_MOST)]
    except duckdb.Error as e:
        raise TableError(
            "LC6252",
            f"{rows.name}: check {check.name} cannot be run: {str(e).splitlines()[0]}: correct `publish.checks`",
        ) from e


def try_check(check: RowCheck, rows: RowsToCheck) -> None:
    """Run a check in SQL, whatever it finds; import one in Python.

    :param rows: without rows, this costs nothing
    :raises TableError: it cannot be run, or not be imported
    """
    _by_sql(check, rows) if check.sql else _imported(check)


def _imported(check: RowCheck) -> Callable[[duckdb.DuckDBPyConnection], Any]:
    module, _, function = check.function.rpartition(".")
    try:
        return getattr(import_module(module), function)  # type: ignore[no-any-return]
    except Exception as e:  # any error of the user's module
        raise TableError("LC6253", f"{check.table}: check {check.function} cannot be imported: {e}") from e


def _by_function(check: RowCheck, rows: RowsToCheck) -> Sequence[Any]:
    call = _imported(check)
    connection = rows.connection
    try:
        with rows.reading():
            # Not by its truth: an array of the one wrong row 0 is false.
            found = call(connection)
            return [] if found is None else list(islice(found, _MOST))
    except AssertionError as e:
        return [str(e) or "an assertion failed"]
    except LakecommitError:
        raise
    except Exception as e:  # any error of the user's function
        raise TableError(
            "LC6254", f"{rows.name}: check {check.name} raised {type(e).__name__}: {e}: correct the function"
        ) from e


def _text(found: Any) -> str:
    text = str(found)
    return text if len(text) <= 200 else f"{text[:199]}…"
