# SPDX-License-Identifier: Apache-2.0
"""The SQL of the documentation, and a DuckDB to run it by, with the extensions that it needs and no network.

Contract: :func:`statements` finds what pages show as SQL, blocks and included files; :func:`duck` has its extensions
from their packages, in a folder of the test's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from tests.support.doc_texts import pages

__all__ = ["duck", "statements"]

_BLOCK = re.compile(r"^\.\. code-block:: sql\n\n((?:(?: {3}[^\n]*)?\n)+)|^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^\.\. literalinclude:: (\S+\.sql)$", re.MULTILINE)
EXTENSIONS = ("avro", "iceberg")


def statements() -> Iterator[str]:
    """Each statement of SQL that a page shows, on one line and without comments."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        shown = [found[1] or found[2] for found in _BLOCK.finditer(text)]
        shown += [(page.parent / name).resolve().read_text(encoding="utf-8") for name in _FILE.findall(text)]
        for block in shown:
            bare = re.sub(r"--.*$", "", block, flags=re.MULTILINE)
            yield from (" ".join(each.split()) for each in bare.split(";") if each.strip())


@contextmanager
def duck(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB that has nothing but its extensions.

    :param folder: for these
    """
    with duckdb.connect(config={"extension_directory": str(folder)}) as made:
        for name in EXTENSIONS:
            import_extension(name, con=made)
        yield made
