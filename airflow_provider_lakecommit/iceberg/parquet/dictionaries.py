# SPDX-License-Identifier: Apache-2.0
"""Choose the columns of a Parquet file that get a dictionary: those whose values repeat.

Contract: :meth:`Dictionaries.of` decides from the first rows of a file, at most :data:`SAMPLE` rows and
:data:`SAMPLE_BYTES` per column: the table of different values takes several times their memory. The decision affects
only size and time; the file is correct in any case. A dictionary of values that hardly repeat costs a third of the
writing time and makes the file bigger, above all for small partitions; Parquet itself abandons it only when it is
already too big.

The estimate: ``d`` different values among ``s`` rows drawn from ``n`` come from about ``s / (2 * (1 - d / s))``
different ones in all, and a dictionary pays if those are fewer than half of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

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
            leaves = (leaf for column in rows.columns for leaf in _leaves(_sample(column).combine_chunks()))
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


def _leaves(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """The primitive columns of a column, in the order of a Parquet file."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
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
