# SPDX-License-Identifier: Apache-2.0
"""Is that the catalog who speaks? Between us and a REST catalog there are gateways that answer in its place.

A gateway whose catalog is being restarted, or that has no route to it, answers 404 or a page in HTML with 200. Neither
says anything of a table. Taken at its word, the first would be a table that does not exist, which is an error that no
retry mends (or even a table to be made), and the second a table that cannot be read.

Contract: pyiceberg's exceptions in, the catalog's own word or not out. Iceberg's REST specification wants an error to
be a JSON object with ``error`` in it; an answer to "load this table" to be one with ``metadata``.
"""

from __future__ import annotations

import json

import pydantic

__all__ = ["denies", "is_no_answer"]


def denies(error: Exception) -> bool:
    """Is it the catalog that says that there is no such thing? Catalogs that are no REST catalogs always do."""
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return True
    try:
        said = json.loads(response.text)
    except ValueError:
        return False
    return isinstance(said, dict) and isinstance(said.get("error"), dict)


def is_no_answer(error: pydantic.ValidationError) -> bool:
    """Was this no answer of a REST catalog at all, rather than one with something in it that pyiceberg cannot read?"""
    if not error.title.endswith("Response"):
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())
