# SPDX-License-Identifier: Apache-2.0
"""The types of the fields of control events, by field id, as every release of iceberg-kafka-connect writes them.

Contract: :func:`fits` tells whether a field has the type that it is read as. A number may be an int or a long, and what
the connector leaves out at times may be there always. Ids inside a partition tuple are the table's own, they are not
looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NUMBER, _UUID, _RECORD, _RECORDS = "number", "fixed 16", "record", "array of record"
_BY_TYPE: dict[str, tuple[int, ...]] = {
    _UUID: (10000, 10100, 10200, 10300, 10400, 10500, 10604),
    _NUMBER: (
        *(10501, 10502, 10001, 10402, 10403, 10701, 10702, 10703),
        *(134, 141, 103, 104, 140, 142, 144, 145),
        *(117, 118, 119, 120, 121, 122, 138, 139, 126, 129),
    ),
    "string": (10503, 10600, 10603, 10700, 100, 101, 143),
    "bytes": (127, 130, 131),
    _RECORD: (10504, 10301, 10401, 102),
    _RECORDS: (10101, 10302, 10304, 108, 109, 110, 137, 125, 128),
    "array of string": (10601,),
    "array of number": (132, 135),
}
KNOWN: Mapping[int, str] = {field_id: kind for kind, ids in _BY_TYPE.items() for field_id in ids}

_OPTIONAL = frozenset(
    {
        *(10001, 10101, 10302, 10304, 10402, 10403, 10604, 10702, 10703),
        *(108, 109, 110, 125, 128, 131, 132, 134, 135, 137, 140, 141, 142, 143, 144, 145),
    }
)


def fits(field_id: Any, shape: Any, names: Mapping[str, Any]) -> bool:
    """Return True if a field with a known id has the expected type.

    :param names: types that are referred to by their name
    """
    if isinstance(shape, list) and field_id in _OPTIONAL:
        others = [member for member in shape if member != "null"]
        return len(others) == 1 and len(shape) == 2 and _kind(others[0], names) == KNOWN[field_id]
    return _kind(shape, names) == KNOWN[field_id]


def _kind(shape: Any, names: Mapping[str, Any]) -> str:
    if isinstance(shape, list):
        return "union"
    if isinstance(shape, str):
        return _NUMBER if shape in ("int", "long") else _kind(names[shape], names) if shape in names else shape
    if shape["type"] == "array":
        return f"array of {_kind(shape['items'], names)}"
    return f"fixed {shape['size']}" if shape["type"] == "fixed" else str(shape["type"])
