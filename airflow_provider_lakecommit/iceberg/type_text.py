# SPDX-License-Identifier: Apache-2.0
"""Words of primitive types as pyiceberg's types."""

from __future__ import annotations

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.landing import sizes_of

_SIMPLE: dict[str, PrimitiveType] = {
    str(t): t
    for t in (
        *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), UUIDType()),
        *(DateType(), TimeType(), TimestampType(), TimestamptzType(), TimestampNanoType(), TimestamptzNanoType()),
    )
}


def primitive_of(word: str) -> PrimitiveType:
    """The type of a word that :func:`~airflow_provider_lakecommit.landing.type_text.parse_type` took."""
    if word in _SIMPLE:
        return _SIMPLE[word]
    first, *rest = sizes_of(word)
    return DecimalType(first, *rest) if word.startswith("decimal") else FixedType(first)
