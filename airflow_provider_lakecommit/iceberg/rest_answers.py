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

__all__ = ["denies", "is_no_answer"]


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
    if not error.title.endswith("Response"):
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())
