# SPDX-License-Identifier: Apache-2.0
"""This package as a zip, for the Python workers of a remote Spark.

Contract: the same sources always give the same bytes and digest. So a zip named by its digest is sent once, and its
workers run exactly their sender's code.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def package_zip() -> bytes:
    """Return a zip of this package's modules for a search path."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in _sources():
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


@cache
def package_digest() -> str:
    """Return a hexadecimal digest of :func:`package_zip`."""
    digest = hashlib.sha256()
    for name, content in _sources():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _sources() -> Iterator[tuple[str, bytes]]:
    for source in sorted(PACKAGE.rglob("*.py")):
        yield source.relative_to(PACKAGE.parent).as_posix(), source.read_bytes()
