# SPDX-License-Identifier: Apache-2.0
"""Dates, times of day and timestamps in JSON, each by a declared rule.

``iso8601`` is the default: a ``timestamptz`` needs a zone offset, a ``timestamp`` must have none; fractions have at
most six digits (nine for nanoseconds). ``epoch_seconds`` to ``epoch_nanos``, ``epoch_days`` and ``seconds_of_day`` to
``nanos_of_day`` take whole numbers; finer ones than the type keeps are refused. Anything else is a pattern of Python's
``strptime``, in UTC without ``%z``. Years are 1 to 9999, else the unit is wrong; nanoseconds end in 1677 and 2262.
There is no leap second and no 24:00. Rules that do not fit are found by :func:`rule_problem` before a record is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from airflow_provider_lakecommit.formats.reading import Convert, Reading, require

_WITHOUT_ZONE = (TimestampType, TimestampNanoType)
_TIMESTAMPS = (*_WITHOUT_ZONE, TimestamptzType, TimestamptzNanoType)
TEMPORAL = (DateType, TimeType, *_TIMESTAMPS)
"""Types that a rule can be given for."""

_NANOS = {"seconds": 1_000_000_000, "millis": 1_000_000, "micros": 1_000, "nanos": 1}
_EPOCH = {f"epoch_{unit}": nanos for unit, nanos in _NANOS.items()}
_OF_DAY = {f"{unit}_of_day": nanos for unit, nanos in _NANOS.items()}
WHOLE_NUMBERS = frozenset({"epoch_days", *_EPOCH, *_OF_DAY})
"""Rules of times that are numbers; others are texts."""
_CHECK_UNIT = "check the unit (today's times have 10 digits in seconds, 13 in millis, 16 in micros, 19 in nanos)"
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
_DAY_MICROS = 86_400_000_000
_ODD = 1_000_000, 50 * _DAY_MICROS
"""Microseconds of 1970 that a present time becomes if its unit is taken for a finer one. Some write 0 for nothing."""
_THIS_CENTURY = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_CLOCK = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_OF_CLOCK = set("HIMSfpX%")
_NOT_OF_DATE = set("HIMSfpXczZ")
_OF_YEAR = set("YyGcx")


def rule_problem(kind: IcebergType, rule: str) -> str | None:
    """Return why a column of this type cannot be read by this rule."""
    if not isinstance(kind, TEMPORAL):
        return f"is {kind}, but rules need dates, times or timestamps"
    if "%" not in rule:
        named = _named(kind)
        return None if rule in named else f"is {kind}, not for {rule}: use {', '.join(named)} or a strptime pattern"
    directives = set(re.findall(r"%(.)", rule))
    of_clock = isinstance(kind, TimeType)
    lost = directives - _OF_CLOCK if of_clock else directives & _NOT_OF_DATE if isinstance(kind, DateType) else ()
    zoned = isinstance(kind, _WITHOUT_ZONE) and "z" in directives
    wrong = (
        (zoned, "has no zone, so the zone of %z would be lost: make it timestamptz"),
        (lost, f"is {kind}, so the value of {', '.join(f'%{d}' for d in sorted(lost))} would be lost"),
        # In each of these cases strptime returns a wrong time without an error.
        ("Z" in directives, "cannot be read by %Z, which ignores the zone: use %z (an offset), or the letters UTC"),
        (("I" in directives) != ("p" in directives), "needs %I and %p together: without the other, each is ignored"),
        (not of_clock and not directives & _OF_YEAR, f"is {kind}, and without %Y each value would be in 1900: add %Y"),
    )
    return next((why for found, why in wrong if found), None)


def time_reading(kind: IcebergType, rule: str) -> Reading:
    """Return the reading of a column of :data:`TEMPORAL` by a rule without a :func:`rule_problem`."""
    if rule == "iso8601":
        return Reading(pa.string(), _iso_time if isinstance(kind, TimeType) else plausible)
    if rule == "epoch_days":
        return Reading(pa.int32(), plausible)
    if (nanos := (_EPOCH | _OF_DAY).get(rule)) is not None:
        return Reading(pa.int64(), _number(nanos))
    if isinstance(kind, DateType):
        return Reading(pa.string(), _pattern(rule, pa.date32(), datetime.date))
    if isinstance(kind, TimeType):
        return Reading(pa.string(), _pattern(rule, pa.time64("us"), datetime.time))
    in_utc = _pattern(rule, pa.timestamp("us", "UTC"), lambda at: at.replace(tzinfo=UTC) if at.tzinfo is None else at)
    return Reading(pa.string(), in_utc)


def number_times(kind: IcebergType, rule: str) -> Convert:
    """Return the conversion of whole numbers of any width by a rule."""
    reading = time_reading(kind, rule)
    return lambda values, target: reading.convert(values.cast(reading.wire), target)


RULE_OF: Mapping[str, str] = {
    "io.debezium.time.Timestamp": "epoch_millis",
    "io.debezium.time.MicroTimestamp": "epoch_micros",
    "io.debezium.time.NanoTimestamp": "epoch_nanos",
    "org.apache.kafka.connect.data.Timestamp": "epoch_millis",
    "io.debezium.time.Date": "epoch_days",
    "org.apache.kafka.connect.data.Date": "epoch_days",
    "io.debezium.time.Time": "millis_of_day",
    "io.debezium.time.MicroTime": "micros_of_day",
    "io.debezium.time.NanoTime": "nanos_of_day",
    "org.apache.kafka.connect.data.Time": "millis_of_day",
}
"""The rule of each name that Kafka Connect and Debezium give to whole numbers as times."""


def unread(meaning: str, stated: str | None) -> str | None:
    """Return why numbers are not times of a column, ``None`` if they are.

    :param meaning: their name in the schema, if any
    :param stated: the rule of the column, if any
    """
    rule = RULE_OF.get(meaning)
    if stated is None or (not stated.startswith("epoch_") and not stated.endswith("_of_day")):
        known = f" ({meaning} is {rule})" if rule else ""
        return f"without a logical type; state in `timestamps` how times are written{known}"
    if rule not in (None, stated):
        return f"of {meaning}, which {rule} reads; `timestamps` has {stated}"
    return None


class Suspects(NamedTuple):
    """Of the values of a column, how many are probably not what the source meant; ``better`` may fit: another rule for
    times, another field for the column.
    """

    odd: int
    of: int
    better: str

    def plus(self, more: Suspects) -> Suspects:
        return Suspects(self.odd + more.odd, self.of + more.of, more.better or self.better)


def odd_times(rows: pa.Table, rules: Mapping[str, str]) -> dict[str, Suspects]:
    """Return what columns with times in a finer unit than seconds have.

    :param rules: by column, as :func:`time_reading` takes them
    """
    found: dict[str, Suspects] = {}
    for name, rule in rules.items():
        if rule in _EPOCH and rule != "epoch_seconds" and name in rows.column_names:
            ticks = rows.column(name).cast(pa.int64())
            scale = 1_000 if rows.column(name).type.unit == "ns" else 1
            odd = pc.and_(pc.greater_equal(ticks, _ODD[0] * scale), pc.less(ticks, _ODD[1] * scale))
            count = pc.sum(odd, min_count=0).as_py()
            better = _coarser(rule, pc.max(ticks.filter(odd)).as_py() // scale) if count else ""
            found[name] = Suspects(count, len(ticks) - ticks.null_count, better)
    return found


def _coarser(rule: str, micros: int) -> str:
    """Return the finest rule by which a time of 1970 is one of this century, or the coarsest one."""
    coarser = [*_EPOCH][: [*_EPOCH].index(rule)]
    factors = {name: _EPOCH[name] // _EPOCH[rule] for name in coarser}
    return next((name for name in reversed(coarser) if micros * factors[name] >= _THIS_CENTURY), coarser[0])


def _named(kind: IcebergType) -> list[str]:
    numbers = ["epoch_days"] if isinstance(kind, DateType) else _OF_DAY if isinstance(kind, TimeType) else _EPOCH
    return ["iso8601", *numbers]


def _iso_time(array: pa.Array, target: pa.DataType) -> pa.Array:
    require(pc.match_substring_regex(array, _CLOCK), array, "not a time of day (HH:MM, HH:MM:SS, HH:MM:SS.ffffff)")
    stamps = pc.binary_join_element_wise("1970-01-01", array, "T").cast(pa.timestamp("us"))
    return stamps.cast(pa.int64()).cast(target)


def _number(nanos: int) -> Convert:
    """Convert whole numbers of so many nanoseconds, since the epoch or midnight."""

    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        kept = _NANOS["nanos" if target.unit == "ns" else "micros"]
        if nanos >= kept:
            ticks = _times(array, nanos // kept)
        else:
            factor = pa.scalar(kept // nanos, pa.int64())
            ticks = pc.divide(array, factor)
            unit = "" if pa.types.is_time(target) else f"; {_CHECK_UNIT}"
            require(pc.equal(pc.multiply(ticks, factor), array), array, f"not a whole number of microseconds{unit}")
        if pa.types.is_time(target):
            within = pc.and_(pc.greater_equal(ticks, 0), pc.less(ticks, _DAY_MICROS))
            require(within, array, "not within a day; check the unit")
        return plausible(ticks, target)

    return convert


def _pattern(pattern: str, read_as: pa.DataType, part: Callable[[datetime], Any]) -> Convert:
    """Convert by Python's strptime, once per different text: Arrow's own takes 30 February as 2 March."""

    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        texts = array.dictionary_encode()
        read = [None if t is None else part(datetime.strptime(t, pattern)) for t in texts.dictionary.to_pylist()]
        values = pa.array(read, read_as).take(texts.indices)
        if not pa.types.is_timestamp(target):
            return plausible(values, target)
        micros = values.cast(pa.int64())
        ticks = _times(micros, 1_000) if target.unit == "ns" else micros
        return plausible(ticks, target)

    return convert


def _times(array: pa.Array, factor: int) -> pa.Array:
    try:
        return pc.multiply_checked(array, pa.scalar(factor, pa.int64()))
    except pa.ArrowInvalid:
        raise ValueError(f"beyond the range of the column; {_CHECK_UNIT}") from None


def plausible(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast to the target, if all values are in the years 1 to 9999, or within a day."""
    values = values.cast(target)
    if pa.types.is_timestamp(target) and target.unit == "ns":
        return values
    ends = pc.min_max(values.cast(pa.int32() if pa.types.is_date(target) else pa.int64()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return values
    if pa.types.is_time(target):
        if least < 0 or most >= _DAY_MICROS:
            raise ValueError("not within a day; check the unit")
        return values
    scale = _DAY_MICROS if pa.types.is_date(target) else 1
    if least * scale < _EARLIEST or most * scale > _LATEST:
        raise ValueError(f"not in the years 1 to 9999; {_CHECK_UNIT}")
    return values
