# SPDX-License-Identifier: Apache-2.0
"""Arrow's messages on a value that does not fit, with a remedy, and without advice on programs that use Arrow."""

from __future__ import annotations

import re
from decimal import Decimal

_MOST_DIGITS = 38
_FORM = "cannot be read as {what}: state its form in `timestamps`"
_DECIMAL = r"decimal\d+\((?P<precision>\d+), (?P<scale>\d+)\)"
_JSON = r"Failed to convert JSON to "
_TEXT = r"Failed to parse string: '(?P<value>{})' as a scalar of type "
_DECIMAL_REASON = "{value} has {has}, and the table has decimal({precision}, {scale}): {remedy}"
_BEYOND_64_BITS = "{value} does not fit in 64 bits: make the column a decimal; check the unit of a time"
_TABLE = (
    (_JSON + _DECIMAL + r": (?P<value>\S+) requires precision", _DECIMAL_REASON),
    (r"Decimal value (?P<unscaled>-?\d+) does not fit in precision of " + _DECIMAL, _DECIMAL_REASON),
    (_JSON + _DECIMAL + r": (?P<value>\S+) requires scale (?P<decimals>\d+)", _DECIMAL_REASON),
    (r"Empty string cannot be converted to decimal\d+", "an empty text is not a number"),
    (
        r"The string '(?P<value>[\d.,-]*,[\d.,-]*)' is not a valid decimal\d+ number",
        "'{value}' is not a number: write it with a decimal point and without other separators",
    ),
    (r"The string '(?P<value>.*)' is not a valid decimal\d+ number", "'{value}' is not a number"),
    (
        r"Decimal value.* does not fit in precision 38.*",
        "a number has more digits than the 38 of its decimal column: make a new column with fewer decimals, or of type "
        "string",
    ),
    (
        r"Decimal value.* does not fit in precision (?P<precision>\d+).*",
        "a number has more digits than the {precision} of its decimal column: widen the column, or set `evolve: widen`",
    ),
    (
        r"Rescaling Decimal value would cause data loss",
        "a number has more decimals than its column: round it in the producer, or make a new column",
    ),
    (
        _JSON + r"int32, couldn't parse:(?P<value>-?\d{1,18})$",
        "{value} does not fit in 32 bits: widen an int to long, or set `evolve: widen`; check the unit of a date",
    ),
    (_JSON + r"int\d+, couldn't parse:(?P<value>-?\d+)$", _BEYOND_64_BITS),
    (_JSON + r"int\d+, couldn't parse:(?P<value>\S*)", "{value} is not written as a whole number"),
    (r"Integer value (?P<value>-?\d+) not in range: .* to 9223372036854775807", _BEYOND_64_BITS),
    (
        r"Integer value (?P<value>-?\d+) not in range: (?P<range>.*)",
        "{value} is out of range ({range}): widen an int column, or set `evolve: widen`; check the unit of a date",
    ),
    (
        _TEXT.format(r"\d{4}-\d\d-\d\d([T ][\d:.]+)?") + r"timestamp\[\w+, tz.*expected a zone",
        "'{value}' has no zone offset, and the table has timestamptz: write one (`Z`), make the column a timestamp, or "
        "state the form in `timestamps`",
    ),
    (
        _TEXT.format(".*") + r"timestamp\[\w+\]: expected no zone offset",
        "'{value}' has a zone offset, and the table has timestamp: make the column a timestamptz",
    ),
    (_TEXT.format(".*") + "timestamp", "'{value}' " + _FORM.format(what="an ISO 8601 time")),
    (_TEXT.format(".*") + "date", "'{value}' " + _FORM.format(what="a date (YYYY-MM-DD)")),
    (_TEXT.format(".*") + r"\w+", "'{value}' does not fit the column's type"),
)
_KNOWN = tuple((re.compile(pattern, re.DOTALL), text) for pattern, text in _TABLE)


def plain_reason(message: str) -> str:
    """Return the message in plain words, by the first pattern that it matches, or as it is."""
    for known, text in _KNOWN:
        if (found := known.search(message)) is not None:
            parts = found.groupdict() | (_decimal(found.groupdict()) if text is _DECIMAL_REASON else {})
            return message[: found.start()] + text.format(**parts)
    return message


def _decimal(found: dict[str, str]) -> dict[str, object]:
    value = Decimal(found["value"]) if "value" in found else Decimal(f"{found['unscaled']}e-{found['scale']}")
    precision, scale = int(found["precision"]), int(found["scale"])
    needed = (digits := max(0, value.adjusted() + 1)) + scale
    if "decimals" in found or needed <= precision:
        decimals = int(found.get("decimals", -int(value.as_tuple().exponent)))
        possible = digits + decimals <= _MOST_DIGITS
        new = f"new column with {decimals} decimals" if possible else "new column of type string"
        has, remedy = f"{decimals} decimals", f"round it in the producer, or make a {new}"
    else:
        wider = f"widen the column to decimal({needed}, {scale}), or set `evolve: widen`"
        remedy = wider if needed <= _MOST_DIGITS else "no decimal has so many digits; make the column a string"
        has = f"{digits} digits before the point"
    return {"value": found.get("value", value), "has": has, "remedy": remedy}
