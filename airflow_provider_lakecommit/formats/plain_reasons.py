# SPDX-License-Identifier: Apache-2.0
"""Arrow's messages on a value that does not fit, in the words of this package: the value, the column's type, a remedy.

Contract: a message that is not in the table is returned as it is. Arrow's advice is about programs that use Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal

_TYPES = {"int32": "int", "int64": "long"}
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_MOST_DIGITS = 38
_DIGITS_OF_LONG = 19
_EXACT = Context(prec=80)


def plain_reason(message: str) -> str:
    """Return the message without Arrow's words."""
    for known, told in _TABLE:
        if (found := known.search(message)) is not None:
            return message[: found.start()] + told(found)
    return message


def _precision(m: re.Match[str]) -> str:
    scale = int(m["scale"])
    value = Decimal(m["value"]) if m["value"] else Decimal(m["unscaled"]).scaleb(-scale, _EXACT)
    digits = value.adjusted() + 1
    kind = f"decimal({m['precision']}, {scale})"
    said = f"{m['value'] or value} has {digits} digits before the point, and the table has {kind}"
    if digits + scale > _MOST_DIGITS:
        return f"{said}: no decimal has so many digits; make the column a string"
    return f"{said}: widen the column to decimal({digits + scale}, {scale}), or set `evolve: widen`"


def _scale(m: re.Match[str]) -> str:
    return (
        f"{m['value']} has {m['needed']} decimals, and the table has decimal({m['precision']}, {m['scale']}): round it "
        f"in the producer, or make a new column with {m['needed']} decimals"
    )


def _whole(m: re.Match[str]) -> str:
    if not re.fullmatch(r"-?\d+", m["value"]):
        return f"{m['value']} is not written as a whole number"
    is_long = m["type"] == "int32" and len(m["value"]) < _DIGITS_OF_LONG
    wider = ": widen the column to long, or set `evolve: widen`" if is_long else ""
    return f"{m['value']} is out of range, and the table has {_TYPES.get(m['type'], m['type'])}{wider}"


def _zoned(m: re.Match[str]) -> str:
    if _LOCAL.fullmatch(m["value"]):
        return (
            f"'{m['value']}' has no zone offset, and the table has timestamptz: write one (`Z`), make the column a "
            "timestamp, or state the form in `timestamps`"
        )
    return _form(m)


def _form(m: re.Match[str]) -> str:
    what = "a date (YYYY-MM-DD)" if m["type"] == "date" else "an ISO 8601 time"
    return f"'{m['value']}' cannot be read as {what}: state its form in `timestamps`"


_PARSED = r"Failed to parse string: '(?P<value>.*)' as a scalar of type "
_OF_DECIMAL = r"decimal\d+\((?P<precision>\d+), (?P<scale>\d+)\)"
_DECIMAL = rf"Failed to convert JSON to {_OF_DECIMAL}: (?P<value>\S+) requires "
_UNSCALED = rf"Decimal value (?P<unscaled>-?\d+)(?P<value>)? does not fit in precision of {_OF_DECIMAL}"
_TABLE: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern, re.DOTALL), told)
    for pattern, told in (
        (_DECIMAL + r"precision", _precision),
        (_UNSCALED, _precision),
        (_DECIMAL + r"scale (?P<needed>\d+)", _scale),
        (r"The string '(?P<value>.*)' is not a valid decimal\d+ number", lambda m: f"'{m['value']}' is not a number"),
        (r"Failed to convert JSON to (?P<type>\w+), couldn't parse:(?P<value>\S*)", _whole),
        (_PARSED + r"(?P<type>timestamp)\[\w+, tz=\w+\]", _zoned),
        (
            _PARSED + r"(?P<type>timestamp)\[\w+\]: expected no zone offset",
            lambda m: f"'{m['value']}' has a zone offset, and the table has timestamp: make the column a timestamptz",
        ),
        (_PARSED + r"(?P<type>timestamp|date)", _form),
        (
            r"Decimal value.* does not fit in precision (?P<digits>\d+).*",
            lambda m: (
                f"a number has more digits than the {m['digits']} of its decimal column: widen the column, or set "
                "`evolve: widen`"
            ),
        ),
        (
            r"Rescaling Decimal value would cause data loss",
            lambda _: "a number has more decimals than its column: round it in the producer, or make a new column",
        ),
        (
            r"Integer value (?P<value>-?\d+) not in range: (?P<range>-?\d+ to -?\d+)",
            lambda m: f"{m['value']} is out of range ({m['range']}): widen the column, or set `evolve: widen`",
        ),
        (_PARSED + r"(?P<type>\w+)", lambda m: f"'{m['value']}' does not fit {_TYPES.get(m['type'], m['type'])}"),
    )
)
"""The first entry that a message matches."""
