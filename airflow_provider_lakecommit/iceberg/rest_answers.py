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
from typing import TYPE_CHECKING

import pydantic
from pyiceberg.exceptions import OAuthError

if TYPE_CHECKING:
    import requests

_FEW = 20
_SHOWN = 60
_NO_CATALOG = "HTTP status {} with {!r}, which is not the answer of an Iceberg REST catalog"


def denies(error: Exception) -> bool:
    """Return whether the catalog itself reports that the object does not exist. Catalogs other than REST ones always
    do.
    """
    return _foreign(error) is None


def _foreign(error: BaseException) -> requests.Response | None:
    """Return the answer that an error is about, if it has not the form of a catalog's."""
    response = getattr(error.__cause__, "response", None)
    if response is None or isinstance(error, OAuthError):
        return None
    try:
        body = json.loads(response.text)
    except ValueError:
        body = None
    return None if isinstance(body, dict) and isinstance(body.get("error"), dict) else response


def is_no_answer(error: pydantic.ValidationError) -> bool:
    """Whether this is no answer of a REST catalog at all, rather than one that pyiceberg cannot read."""
    # An answer of something else has an error or two. To list hundreds of thousands takes much memory.
    if not error.title.endswith("Response") or error.error_count() > _FEW:
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())


def of_something_else(error: BaseException) -> bool:
    """Return True if a web server, a gateway or a login page answered instead of a catalog."""
    return is_no_answer(error) if isinstance(error, pydantic.ValidationError) else _foreign(error) is not None


def brief(error: BaseException) -> str:
    """Return an error's own text, or what matters of it: pages, wrappers and hundreds of errors are left out."""
    if isinstance(error, pydantic.ValidationError):
        if error.error_count() > _FEW:
            return f"{error.error_count()} validation errors for {error.title}"
        return _NO_CATALOG.format(200, str(error.errors()[0]["input"])[:_SHOWN]) if is_no_answer(error) else str(error)
    if (response := _foreign(error)) is not None:
        return _NO_CATALOG.format(response.status_code, response.text[:_SHOWN])
    # requests wraps urllib3's error, which names the host again and the number of attempts.
    reason = str(getattr(error.args[0] if error.args else None, "reason", ""))
    return reason.partition("): ")[2] or str(error)
