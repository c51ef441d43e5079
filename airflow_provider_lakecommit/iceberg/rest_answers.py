# SPDX-License-Identifier: Apache-2.0
"""Distinguish a catalog's answer from a gateway's: proxies before a REST catalog may answer in its place.

A gateway whose catalog restarts, or that has no route to it, answers 404, or an HTML page with 200. Neither is
information about a table. If it were trusted, the first would be a missing table, an error that no retry fixes (or even
a table to create), and the second an unreadable table.

Contract: a function of pyiceberg's exception. In Iceberg's REST specification, an error is a JSON object with
``error``, and the answer to a table request is one with ``metadata``.
"""

from __future__ import annotations

import json

import pydantic

_FEW = 20


def denies(error: Exception) -> bool:
    """Return whether the catalog itself reports that the object does not exist. Catalogs other than REST ones always
    do.
    """
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return True
    try:
        body = json.loads(response.text)
    except ValueError:
        return False
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def is_no_answer(error: pydantic.ValidationError) -> bool:
    """Whether this is no answer of a REST catalog at all, rather than one that pyiceberg cannot read."""
    # An answer of something else has an error or two. To list hundreds of thousands takes much memory.
    if not error.title.endswith("Response") or error.error_count() > _FEW:
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())


def brief(error: BaseException) -> str:
    """Return an error's own text, or only the number of errors if their texts would take much memory."""
    if isinstance(error, pydantic.ValidationError) and error.error_count() > _FEW:
        return f"{error.error_count()} validation errors for {error.title}"
    return str(error)
