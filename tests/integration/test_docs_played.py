# SPDX-License-Identifier: Apache-2.0
"""The commands of the documentation do what their pages say: each page is played from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.kafka import unique
from tests.support.doc_happenings import Reader, happen
from tests.support.doc_play import Stage, is_played, script
from tests.support.doc_texts import ROOT, pages

pytestmark = pytest.mark.integration

EXAMPLE = re.compile(r"python (\w+\.py)")
HEAVY = ("docs/howto/connections.rst", "docs/howto/move_cluster.rst")
"""Pages that need brokers of their own."""
PLAYED = [page for page in pages() if is_played(page)]


def names_of(bootstrap: str, folder: Path, topic: str, control: str) -> dict[str, str]:
    """What stands for the names of the pages."""
    return {
        r"127\.0\.0\.1:9092": bootstrap,
        r"/tmp/lake": str(folder),
        r"control-(lakecommit|billing)\b": control,
        r"control-iceberg\b": f"{control}-iceberg",
        # The topic, where a text is surely about it and not about the landing or its spec.
        r"\borders(?=[:\[]\d)": topic,
        r"(?<=^topics: )orders$|(?<=retention of )orders\b": topic,
        r"(?<=infer-schema )orders\b": topic,
        r'(?<=NewTopic\(")orders|(?<=\)\[")orders(?="\])|(?<=produce\(")orders': topic,
    }


@pytest.fixture
def reader(tmp_path: Path, bootstrap: str) -> Iterator[Reader]:
    """A reader with a broker, an empty catalog and topics of his own."""
    topic, control = unique("orders"), unique("control")
    (tmp_path / "warehouse").mkdir()
    stage = Stage(folder=tmp_path, names=names_of(bootstrap, tmp_path, topic, control))
    made = Reader(stage=stage, bootstrap=bootstrap, topic=topic, control=control)
    yield made
    made.end()


def parameter(page: Path) -> Any:
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[pytest.mark.heavy] if name in HEAVY else [])


@pytest.mark.parametrize("page", [parameter(page) for page in PLAYED])
def test_a_page_is_played_from_top_to_bottom(page: Path, reader: Reader) -> None:
    for line in script(page):
        if line.kind == "happens":
            happen(reader, line.text)
        elif line.text.startswith("lakecommit "):
            reader.stage.run(line)
        elif found := EXAMPLE.fullmatch(line.text):
            reader.example(found[1])


def test_what_nobody_knows_how_to_do_is_noticed(reader: Reader) -> None:
    with pytest.raises(AssertionError, match="nobody knows"):
        happen(reader, "a miracle")
