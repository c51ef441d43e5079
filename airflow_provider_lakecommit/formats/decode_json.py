# SPDX-License-Identifier: Apache-2.0
"""JSON values to rows of the table: every value is either one exact row or one reject with its reason.

Arrow parses a block at once; any error refuses the block, and
:func:`~airflow_provider_lakecommit.formats.decoder.halved` finds the records, as the parser's row numbers can be wrong.
Rows that lack a required column are rejected in the parsed block, so a misspelt name in every record costs little.

Decimals come from the number's text, never through a float; too many digits or too fine a scale is a reject, not a
rounding. Integers must be written as integers. A repeated key is a reject. Names are case-sensitive. Objects for maps
are rewritten first (:mod:`~airflow_provider_lakecommit.formats.map_text`).

Unknown fields are counted exactly (:mod:`~airflow_provider_lakecommit.formats.unknown_fields`) or reject the record. A
block is first parsed with unknown fields as an error, which costs nothing; only if there are some, types are inferred;
and if their names hardly repeat, each record is read in Python, to bound memory.

Records inside ``schema`` and ``payload``, as Kafka Connect's JSON converter writes them by default, would become rows
of nulls in a table without these columns; they are rejected, at no cost unless fields of these names were ignored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import DEFAULTS, UNCOUNTED, FormatOptions
from airflow_provider_lakecommit.formats.alike import fail_alike, known_form, other_kind, struct_paths
from airflow_provider_lakecommit.formats.columns import Column, columns_of, missing_rows
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Refusal, Reject, halved, with_positions
from airflow_provider_lakecommit.formats.framed_values import FramedReader
from airflow_provider_lakecommit.formats.guards import ROW, block_text, may_be_too_fine, too_fine, with_decimals
from airflow_provider_lakecommit.formats.map_text import rewriter_for
from airflow_provider_lakecommit.formats.registry.schema_source import JSON, SchemaSource
from airflow_provider_lakecommit.formats.unknown_fields import count_inferred, count_parsed, inferable, paths_of, varied
from airflow_provider_lakecommit.landing import nearest

MOST_NAMES = 50
"""Most unknown names of a record to compare with a missing column."""
LIKE = 0.6
"""Least similarity of a misspelled name."""
Pieces = list[tuple[pa.StructArray, Counter[str]]]
UnknownOf = Callable[[pa.StructArray, Sequence[bytes]], Counter[str]]
_Paths = Mapping[str, tuple[str, str]]
_UNEXPECTED = "unexpected field"
_ONE_BLOCK = pj.ReadOptions(use_threads=False, block_size=2**31 - 1)
# The name of a column may have parentheses: what follows the last one is told apart by its words.
_WHERE = re.compile(
    r"Column\((?:/r)?(?P<path>.*)\)(?P<what> (?:changed|was specified) .*?)(?: in row \d+)?$", re.DOTALL
)


class JsonDecoder(BaseDecoder):
    """Decoder of JSON; remembers which way of parsing works."""

    def __init__(self, schema: Schema, options: FormatOptions = DEFAULTS, skip: Set[str] = frozenset()) -> None:
        self._columns = columns_of(schema, options, skip)
        self._with_pairs = rewriter_for(self._columns)
        self._decimals = with_decimals(self._columns)
        self._paths = {node.parsed_at: (node.path, _hint(node)) for c in self._columns for node in c.nodes()}
        self._struct_paths = struct_paths(self._columns)
        self._strict = options.unknown_fields == "dead_letter"
        self._uncounted = options.unknown_fields == UNCOUNTED
        self._wire = _wrapped([pa.field(c.name, c.wire) for c in self._columns])
        self._leaves = [(path, _wrapped([field])) for c in self._columns for path, field in c.leaves()]
        self._schema = pa.schema([c.target for c in self._columns])
        # Not Schema.empty_table: that knows no uuids.
        self._empty = pa.Table.from_batches([], schema=self._schema)
        self._has_unknown = self._probed = self._varied = False
        # The last hint for the names of a record that lacks a column: records fail for the same reason.
        self._meant: dict[tuple[str, ...], str] = {}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        decoded = self._decode(values) if self._with_pairs is None else self._decode_with_maps(self._with_pairs, values)
        if not (wrapped := wrapped_positions(values, decoded)):
            return decoded
        left = sorted(set(range(len(values))) - set(wrapped))
        rejects = [Reject(index=i, kind="wrong_value", column=None, reason=MARKERS) for i in wrapped]
        return with_positions(self.decode([values[i] for i in left]), left, rejects)

    def _decode_with_maps(self, with_pairs: Callable[[bytes], bytes], values: Sequence[bytes]) -> Decoded:
        texts: list[bytes] = []
        positions: list[int] = []
        refused: list[Reject] = []
        for i, value in enumerate(values):
            try:
                texts.append(with_pairs(value))
                positions.append(i)
            except Refusal as refusal:
                refused.append(Reject.of(i, refusal))
        decoded = self._decode(texts)
        return with_positions(decoded, positions, refused) if refused else decoded

    def _decode(self, values: Sequence[bytes]) -> Decoded:
        return halved(values, self._block, self._explained, self._alike)

    def _block(self, values: Sequence[bytes]) -> Decoded:
        if not values:
            return Decoded(table=self._empty)
        tables, unknown, rejects = [], Counter[str](), list[Reject]()
        pieces, unknown_of = self._parse(values)
        at = 0
        for rows, fields in pieces:
            end = at + len(rows)
            if lacking := self._lacking(rows):
                rejects += [Reject.of(at + i, self._missing(values[at + i], lacking[i])) for i in sorted(lacking)]
                there = np.ones(len(rows), bool)
                there[list(lacking)] = False
                good = [values[at + int(i)] for i in np.flatnonzero(there)]
                rows = rows.filter(pa.array(there))
                fields = unknown_of(rows, good)
            unknown.update(fields)
            arrays = [c.finish(rows.field(rows.type.get_field_index(c.name))) for c in self._columns]
            tables.append(pa.Table.from_arrays(arrays, schema=self._schema))
            at = end
        bad = {reject.index for reject in rejects}
        return Decoded(
            table=tables[0] if len(tables) == 1 else pa.concat_tables(tables),
            records=[i for i in range(len(values)) if i not in bad] if bad else None,
            rejects=tuple(rejects),
            ignored=unknown,
        )

    def _lacking(self, rows: pa.StructArray) -> dict[int, Column]:
        found: dict[int, Column] = {}
        for column, missing in missing_rows(self._columns, rows):
            for i in pc.indices_nonzero(missing).to_pylist():
                found.setdefault(i, column)
        return found

    def _missing(self, value: bytes, column: Column) -> Refusal:
        text = f"required column {column.path} is missing or null"
        with suppress(Refusal):
            key = (column.path, *sorted(paths_of(self._columns, value))[:MOST_NAMES])
            if key not in self._meant:
                self._meant.clear()
                like = nearest(column.path, key[1:], 1, LIKE)
                hint = f"the record has {like[0]!r}, which the table lacks" if like else ""
                self._meant[key] = f"; {hint}" if hint else f": {MARKERS}" if is_wrapper(key[1:]) else ""
            text += self._meant[key]
        return Refusal("missing_required", column.path, text)

    def _parse(self, values: Sequence[bytes]) -> tuple[Pieces, UnknownOf]:
        """Return the parsed rows in pieces, with the unknown fields of each, and a function that counts those of some
        rows.
        """
        if self._uncounted:
            return [(self._read(values, "ignore"), Counter())], lambda _rows, _values: Counter()
        if self._strict or not self._has_unknown:
            try:
                return [(self._read(values, "error"), Counter())], lambda _rows, _values: Counter()
            except Refusal as refusal:
                if self._strict or refusal.kind != "unknown_field":
                    raise
                self._has_unknown = True
        if not self._varied:
            # Perhaps only the unknown fields contradict each other: then it is read on without them.
            with suppress(Refusal):
                return self._infer(values), lambda rows, _values: count_inferred(self._columns, rows)
        rows = self._read(values, "ignore")
        return [(rows, count_parsed(self._columns, values))], lambda _rows, values: count_parsed(self._columns, values)

    def _infer(self, values: Sequence[bytes]) -> Pieces:
        pieces: Pieces = []
        for start, end in inferable(values, self._probed):
            rows = self._read(values[start:end], "infer")
            pieces.append((rows, count_inferred(self._columns, rows)))
            if varied(rows.type, self._wire.field(ROW).type):
                self._varied = True
                raise Refusal("unknown_field", None, "there are too many different unknown fields")
            self._probed = True
        return pieces

    def _read(self, values: Sequence[bytes], unexpected: str) -> pa.StructArray:
        text = block_text(values)
        if self._decimals and may_be_too_fine(text) and (bad := too_fine(self._decimals, values)):
            raise next(iter(bad.values()))
        return _read(text, self._wire, unexpected, len(values), self._paths)

    def _explained(self, value: bytes, refusal: Refusal) -> Refusal:
        """Return the refusal of a single value, with the field or column that causes it."""
        if refusal.kind == "unknown_field":
            return self._unknown(value)
        if refusal.kind == "wrong_value" and refusal.column is None:
            return self._blame(value, refusal)
        return known_form(value, refusal) if refusal.kind == "not_json" else refusal

    def _alike(self, values: Sequence[bytes], refusal: Refusal) -> Mapping[int, Refusal]:
        return too_fine(self._decimals, values) or fail_alike(values, refusal, self._struct_paths)

    def _unknown(self, value: bytes) -> Refusal:
        try:
            paths = paths_of(self._columns, value)
        except Refusal as worse:
            return worse
        return Refusal("unknown_field", paths[0] if paths else None, f"the table lacks the field {', '.join(paths)}")

    def _blame(self, value: bytes, refusal: Refusal) -> Refusal:
        """Return the column that a value fails in, by trying each alone, the last one found first."""
        text = block_text([value])
        for i, (path, wire) in enumerate(self._leaves):
            try:
                _read(text, wire, "ignore", 1, {})
            except Refusal:
                self._leaves.insert(0, self._leaves.pop(i))
                return Refusal(refusal.kind, path, f"column {path}: {refusal.reason}")
        return refusal


class FramedJsonDecoder(BaseDecoder):
    """Decoder of JSON after the id of its schema in a registry, which must be that of a JSON Schema.

    Records are checked against the table's columns, not against that schema.
    """

    def __init__(
        self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset(), registry: SchemaSource | None = None
    ) -> None:
        self._json = JsonDecoder(schema, options, skip)
        self._schema = self._json.schema
        # Only the kind of the registered schema matters.
        self._reader = FramedReader(registry, JSON, lambda _schema: None)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        parts, rejects = self._reader.parts(values)
        starts = {position: group.start for group, _ in parts for position in group.positions}
        positions = sorted(starts)
        decoded = self._json.decode([values[position][starts[position] :] for position in positions])
        return decoded if len(positions) == len(values) else with_positions(decoded, positions, rejects)


def _wrapped(fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema([pa.field(ROW, pa.struct(fields))])


def _read(text: bytes, wire: pa.Schema, unexpected: str, values: int, paths: _Paths) -> pa.StructArray:
    """Parse a block into as many rows as values, or refuse it."""
    options = pj.ParseOptions(explicit_schema=wire, newlines_in_values=True, unexpected_field_behavior=unexpected)
    try:
        table = pj.read_json(pa.BufferReader(text), read_options=_ONE_BLOCK, parse_options=options)
        # Lists of nothing but nulls, where types are inferred, can come out as arrays that are too short.
        table.validate()
        rows = table.column(table.schema.get_field_index(ROW)).combine_chunks()
    except pa.ArrowException as e:
        raise _refusal(str(e), paths) from e
    # A value that closes its wrapper can put fields beside it, or make documents of its own.
    if table.num_rows != values or table.column_names != [ROW]:
        raise Refusal("not_json", None, "the value is not one JSON document")
    if rows.null_count:
        raise Refusal("not_json", None, "the value is null, not a JSON object")
    return rows


def _hint(column: Column) -> str:
    """Return the remedy for numbers in a column that is read from strings."""
    of_texts = pa.types.is_string(column.wire) and pa.types.is_temporal(column.target.type)
    return ": state its unit in `timestamps`, for example epoch_millis" if of_texts else ""


def _refusal(message: str, paths: _Paths) -> Refusal:
    text = message.removeprefix("JSON parse error: ")
    if text == _UNEXPECTED:
        return Refusal("unknown_field", None, "the table lacks a field")
    where = _WHERE.match(text)
    if where and not where["path"]:
        return Refusal("not_json", None, f"the value is not a JSON object: it{other_kind(where['what'])}")
    if where:
        path, hint = paths.get(where["path"], (where["path"].removeprefix("/"), ""))
        what = other_kind(where["what"])
        return Refusal("wrong_value", path, f"column {path}{what}{hint if what.startswith(' is a number') else ''}")
    if message != text:
        return Refusal("not_json", None, f"the value is not valid JSON: {re.sub(r' in row [0-9]+$', '', text)}")
    return Refusal("wrong_value", None, text)


MARKERS = (
    "the value is `schema` and `payload`, as Kafka Connect's converter writes it, and the table "
    "has neither column: set value.converter.schemas.enable=false, or read `payload` with a transform; use "
    "`transform.unwrap` for change envelopes"
)
_NAMES = frozenset({"schema", "payload"})


def is_wrapper(names: Collection[str]) -> bool:
    return set(names) == _NAMES


def wrapped_positions(values: Sequence[bytes], decoded: Decoded) -> Sequence[int]:
    """Return the positions of values that gave a row and are wrappers."""
    if not all(decoded.ignored.get(name) for name in _NAMES):
        return ()
    positions = range(len(values)) if decoded.records is None else decoded.records
    return [i for i in positions if b'"payload"' in values[i] and is_wrapper(_names(values[i]))]


def _names(value: bytes) -> Collection[str]:
    """Return the names of a parsed record; none if Python reads less of it than the parser."""
    try:
        return dict(json.loads(value, parse_int=str, parse_float=str))
    except (ValueError, RecursionError):
        return ()
