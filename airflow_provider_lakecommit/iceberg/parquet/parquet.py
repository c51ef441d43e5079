# SPDX-License-Identifier: Apache-2.0
"""One Parquet file of a table: the settings from the table's properties, and the file while it is written.

Contract: :class:`FileFormat` reads the ``write.*`` properties once; :data:`DEFAULTS` replace the missing ones.
:class:`OpenFile` writes row groups and, once closed, is a :class:`~pyiceberg.manifest.DataFile` with its statistics. A
file is created exclusively: none is ever overwritten.

Memory: only a row group's pages are held. Values are passed to a page in batches, small ones for big values, because a
page can only end between two batches.

Failure story: an unsupported property (another format, an unknown codec, a level that the codec lacks, an invalid
number) is a :class:`TableError` when the window is planned. Some would raise no error later: Parquet's writer kills its
process for a negative row limit of a page, and never ends for a limit of zero.

Columns whose values repeat get a dictionary. :meth:`Dictionaries.of` decides from the first rows of a file, at most
:data:`SAMPLE` rows and :data:`SAMPLE_BYTES` per column: the table of different values takes several times their memory.
The decision affects only size and time; the file is correct in any case. A dictionary of values that hardly repeat
costs a third of the writing time and makes the file bigger, above all for small partitions; Parquet itself abandons it
only when it is already too big.

The estimate: ``d`` different values among ``s`` rows drawn from ``n`` come from about ``s / (2 * (1 - d / s))``
different ones in all, and a dictionary pays if those are fewer than half of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.manifest import FileFormat as Format
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.null_parents import with_whole_fields
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import one_array
from airflow_provider_lakecommit.iceberg.parquet.statistics import Metrics, Tally

MIB = 1 << 20
ROW_GROUP_BYTES = 64 * MIB
DEFAULTS = {
    TableProperties.PARQUET_DICT_SIZE_BYTES: MIB // 4,
    TableProperties.PARQUET_PAGE_SIZE_BYTES: MIB,
    TableProperties.PARQUET_PAGE_ROW_LIMIT: 20_000,
    TableProperties.PARQUET_ROW_GROUP_LIMIT: 1 << 20,
    TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES: ROW_GROUP_BYTES,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: 512 * MIB,
    TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES: MIB,
}
ZSTD_LEVEL = 2
"""As small as with level 3 on what we measured, in less time."""
MOST_VALUES = 4096
"""Values that are handed to a page at once, where they are small."""
MOST = 2**63 - 1

_CODECS = {"zstd", "gzip", "snappy", "lz4", "brotli"}
_BLOOM = TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX + "."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_BLOOM_FPP_DEFAULT = 0.01


class FileFormat:
    """The settings for writing files of a table.

    :raises TableError: a property cannot be obeyed
    """

    def __init__(self, table: str, properties: Mapping[str, str], schema: Schema, file_schema: Schema) -> None:
        self._table, self._properties = table, properties
        format = properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
        if format.lower() != "parquet":
            raise TableError("LC3323", f"{table} has write.format.default={format}: only parquet is written; set it so")
        self.file_bytes = self._whole(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
        self.group_rows = self._whole(TableProperties.PARQUET_ROW_GROUP_LIMIT)
        self.group_bytes = min(
            ROW_GROUP_BYTES, self._whole(TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES), self.file_bytes
        )
        self._page_bytes = self._whole(TableProperties.PARQUET_PAGE_SIZE_BYTES)
        self._options = {
            **self._compression(),
            "data_page_size": self._page_bytes,
            "max_rows_per_page": self._whole(TableProperties.PARQUET_PAGE_ROW_LIMIT),
            "dictionary_pagesize_limit": self._whole(TableProperties.PARQUET_DICT_SIZE_BYTES, least=0),
            # As other engines write decimals of up to 18 digits.
            "store_decimal_as_integer": True,
        }
        paths = _paths(file_schema)
        self._dictionaries = Dictionaries(list(paths.values()))
        self._bloom = self._bloom_filters(schema, paths)
        self._bloom_bytes = self._whole(TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES)

    def options(self, rows: pa.Table) -> dict[str, Any]:
        """Options of :class:`pyarrow.parquet.ParquetWriter` for a file that begins with *rows*."""
        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        batch = max(1, min(MOST_VALUES, self._page_bytes // row_bytes))
        dictionaries = self._dictionaries.of(rows)
        options = {**self._options, "write_batch_size": batch, "use_dictionary": dictionaries or False}
        if self._bloom:
            options["bloom_filter_options"] = {
                path: {"ndv": min(max(1, rows.num_rows), _most_distinct(self._bloom_bytes, fpp)), "fpp": fpp}
                for path, fpp in self._bloom.items()
            }
        return options

    def _compression(self) -> dict[str, Any]:
        codec = self._properties.get(TableProperties.PARQUET_COMPRESSION, "zstd").lower()
        if codec == "uncompressed":
            return {"compression": "none"}
        if codec not in _CODECS:
            raise TableError(
                "LC3324",
                f"{self._table} has {TableProperties.PARQUET_COMPRESSION}={codec}: "
                f"set one of {', '.join(sorted(_CODECS))} or uncompressed",
            )
        level: int | None = ZSTD_LEVEL if codec == "zstd" else None
        if TableProperties.PARQUET_COMPRESSION_LEVEL in self._properties and codec not in ("snappy", "lz4"):
            level = self._whole(TableProperties.PARQUET_COMPRESSION_LEVEL, least=-MOST)
            try:
                pa.Codec(codec, level).compress(b"")
            except (OSError, OverflowError) as e:
                raise TableError(
                    "LC3325",
                    f"{self._table}: table property {TableProperties.PARQUET_COMPRESSION_LEVEL}={level} is not a "
                    f"level of {codec}; correct it",
                ) from e
        return {"compression": codec, "compression_level": level}

    def _bloom_filters(self, schema: Schema, paths: Mapping[int, str]) -> dict[str, float]:
        """False-positive rate by path in the file, for the columns that are to have a filter. Truths have none."""
        filters = {}
        for key, value in self._properties.items():
            name = key.removeprefix(_BLOOM)
            field = schema._name_to_id.get(name, -1)
            asked = key.startswith(_BLOOM) and value.strip().lower() == "true"
            if asked and field in paths and not isinstance(schema.find_type(field), BooleanType):
                filters[paths[field]] = self._fraction(f"{_BLOOM_FPP}{name}", _BLOOM_FPP_DEFAULT)
        return filters

    def _whole(self, name: str, *, least: int = 1) -> int:
        text = self._properties.get(name, DEFAULTS.get(name))
        try:
            value = int(str(text))
        except ValueError as e:
            raise TableError(
                "LC3326", f"{self._table}: table property {name}={text!r} is not a whole number; correct it"
            ) from e
        if not least <= value <= MOST:
            raise TableError(
                "LC3327", f"{self._table}: table property {name}={value} is not from {least} to {MOST}; correct it"
            )
        return value

    def _fraction(self, name: str, default: float) -> float:
        text = self._properties.get(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < 1:
            raise TableError(
                "LC3328", f"{self._table}: table property {name}={text!r} is not between 0 and 1; correct it"
            )
        return value


class OpenFile:
    """A file being written. Its first rows create it.

    :raises FileExistsError: the file exists
    """

    def __init__(
        self, output: OutputFile, layout: FileFormat, metrics: Metrics, rows: pa.Table, partition: Record
    ) -> None:
        self._output, self._partition = output, partition
        self._tally = Tally(metrics)
        self._stream = output.create(overwrite=False)
        try:
            self._writer = pq.ParquetWriter(cast(Any, self._stream), rows.schema, **layout.options(rows))
            self.write(rows)
        except BaseException:
            self._stream.close()
            raise

    @property
    def written(self) -> int:
        """Bytes of the row groups so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """One row group."""
        self._tally.add(rows)
        self._writer.write_table(with_whole_fields(rows), row_group_size=max(1, rows.num_rows))

    def close(self, spec_id: int, sort_order_id: int | None) -> DataFile:
        """Finish the file."""
        with self._stream:
            self._writer.close()
            size = int(self._stream.tell())
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._output.location,
            file_format=Format.PARQUET,
            partition=self._partition,
            file_size_in_bytes=size,
            sort_order_id=sort_order_id,
            equality_ids=None,
            key_metadata=None,
            **self._tally.result(self._writer.writer.metadata),
        )
        file.spec_id = spec_id
        return file

    def give_up(self) -> None:
        """Abandon the file, whatever is in it."""
        with self._stream:
            self._writer.close()


def _most_distinct(max_bytes: int, fpp: float) -> int:
    """Most different values of a split-block Bloom filter of this size and false-positive rate."""
    return max(1, int(-max_bytes * math.log(1 - fpp ** (1 / 8))))


def _paths(schema: Schema) -> dict[int, str]:
    """Path in a Parquet file of every primitive column, in the file's order."""
    paths: dict[int, str] = {}

    def below(field: NestedField, path: str) -> None:
        kind = field.field_type
        if isinstance(kind, StructType):
            for child in kind.fields:
                below(child, f"{path}.{child.name}")
        elif isinstance(kind, ListType):
            below(kind.element_field, f"{path}.list.element")
        elif isinstance(kind, MapType):
            below(kind.key_field, f"{path}.key_value.key")
            below(kind.value_field, f"{path}.key_value.value")
        else:
            paths[field.field_id] = path

    for field in schema.fields:
        below(field, field.name)
    return paths


SAMPLE = 4096
SAMPLE_BYTES = 4 << 20


class Dictionaries:
    """Remembers its answers for files of about the same number of rows.

    :param paths: of all primitive columns, in their order in the file
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._known: dict[int, list[str]] = {}

    def of(self, rows: pa.Table) -> list[str]:
        """Paths of the columns that get one in a file whose first row group is *rows*."""
        size = rows.num_rows.bit_length()
        if size not in self._known:
            leaves = (leaf for column in rows.columns for leaf in _leaves(one_array(_sample(column))))
            self._known[size] = [
                path for path, leaf in zip(self._paths, leaves, strict=True) if _repeats(leaf, rows.num_rows)
            ]
        return self._known[size]


def _sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.slice(0, min(SAMPLE, max(1, SAMPLE_BYTES * len(column) // max(1, column.nbytes))))


def _repeats(leaf: pa.Array, rows: int) -> bool:
    sample = leaf.slice(0, SAMPLE)
    drawn = len(sample)
    different = pc.count_distinct(sample, mode="all").as_py()
    return bool(different <= drawn * max(0.5, 1 - drawn / max(rows, drawn, 1)))


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The primitive columns of a column, in the order of a Parquet file."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _leaves(array.field(i))
    elif pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(kind):
        yield from _leaves(array.flatten())
    else:
        yield array
