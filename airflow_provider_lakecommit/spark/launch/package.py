# SPDX-License-Identifier: Apache-2.0
"""This package as a zip, for the Python workers of a Spark that is elsewhere.

Contract: the same sources give the same bytes and the same digest, whoever asks; another source gives another digest.
So a zip that is named by its digest is sent once, and a worker that holds it never runs other code than its sender.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["PACKAGE", "package_digest", "package_zip"]

PACKAGE = Path(__file__).resolve().parents[2]
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def package_zip() -> bytes:
    """The modules of this package, to be put on a search path."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in _sources():
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


@cache
def package_digest() -> str:
    """Names what :func:`package_zip` holds; hexadecimal."""
    digest = hashlib.sha256()
    for name, content in _sources():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _sources() -> Iterator[tuple[str, bytes]]:
    for source in sorted(PACKAGE.rglob("*.py")):
        yield source.relative_to(PACKAGE.parent).as_posix(), source.read_bytes()
