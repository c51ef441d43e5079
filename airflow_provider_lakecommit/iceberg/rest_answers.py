# SPDX-License-Identifier: Apache-2.0
"""Tells a catalog's answer from a gateway's: before a REST catalog there are proxies that answer in its place.

A gateway whose catalog is being restarted, or that has no route to it, answers 404 or a page in HTML with 200. Neither
says anything of a table. Believed, the first would be a table that does not exist, which is an error that no
retry mends (or even a table to be made), and the second a table that cannot be read.

Contract: a function of pyiceberg's exception. Iceberg's REST specification wants an error to
be a JSON object with ``error`` in it; an answer to "load this table" to be one with ``metadata``.
"""

from __future__ import annotations

import json

import pydantic

__all__ = ["brief", "denies", "is_no_answer"]

_FEW = 20


def denies(error: Exception) -> bool:
    """Whether the catalog itself says that there is no such thing. Other catalogs than REST ones always do."""
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return True
    try:
        said = json.loads(response.text)
    except ValueError:
        return False
    return isinstance(said, dict) and isinstance(said.get("error"), dict)


def is_no_answer(error: pydantic.ValidationError) -> bool:
    """Whether this is no answer of a REST catalog at all, rather than one that pyiceberg cannot read."""
    # An answer of something else has an error or two. To list hundreds of thousands takes much memory.
    if not error.title.endswith("Response") or error.error_count() > _FEW:
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())


def brief(error: BaseException) -> str:
    """Return an error's own text, or how many errors it stands for where their texts would take much memory."""
    if isinstance(error, pydantic.ValidationError) and error.error_count() > _FEW:
        return f"{error.error_count()} validation errors for {error.title}"
    return str(error)
