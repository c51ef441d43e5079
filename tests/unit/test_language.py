# SPDX-License-Identifier: Apache-2.0
"""Plain English, as far as a program can judge it.

The numbers are what is left of the former language. They only go down: whoever improves a text lowers its number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from lakecommit_errors import coded_errors

from tests.support.doc_texts import pages
from tests.support.sources import sources

PAGES = [page for page in pages() if page.suffix == ".rst" and "adr" not in page.parts]

AVOIDED = [
    "told",
    "tells",
    "asked",
    "who",
    "whom",
    "somebody",
    "nobody",
    "gone",
    "mend",
    "mended",
    "mends",
    "stands",
    "rim",
    "desk",
    "errand",
    "hasty",
    "fate",
    "fates",
    "lane",
    "lanes",
    "entangled",
    "attest",
    "rebind",
    "unbelieved",
    "believed",
    "letters",
]
"""Words for which there is one of the field: reported, user, missing, fix, is, stream, dead letters."""

LEFT = {
    "docstrings that ask": 0,
    "errors with an avoided word": 6,
    "help lines of more than twelve words": 0,
    "words in a sentence of the docs": 12,
}


def docstrings() -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return (
        text
        for _, tree in sources().values()
        for n in ast.walk(tree)
        if isinstance(n, kinds)
        if (text := ast.get_docstring(n))
    )


def help_lines() -> list[str]:
    """The help of every command and option."""
    calls = (n for _, tree in sources().values() for n in ast.walk(tree) if isinstance(n, ast.Call))
    stated = (k.value for call in calls for k in call.keywords if k.arg == "help")
    return [
        "".join(c.value for c in ast.walk(text) if isinstance(c, ast.Constant) and isinstance(c.value, str))
        for text in stated
    ]


def messages() -> dict[str, str]:
    return {error.code: error.message for error in coded_errors()}


def avoided_in(text: str) -> set[str]:
    """The avoided words of a text, without what is literal in it."""
    plain = re.sub(r"`[^`]*`|\{[^}]*\}|'[^']*'|--[\w-]+", " ", text)
    return set(re.findall(r"[a-z]+", plain.lower())) & set(AVOIDED)


def sentences(page: str) -> Iterator[str]:
    """The sentences of the paragraphs of a page: no directive, code, table, list or heading."""
    for block in re.split(r"\n\s*\n", page):
        lines = block.splitlines()
        if not block.strip() or block[0].isspace() or re.match(r"(\.\. |[-*=~+|]|:\w)", block):
            continue
        if len(lines) > 1 and re.fullmatch(r"([=~^-])\1{2,}", lines[1]):
            continue
        yield from re.split(r"(?<=[.?!:;])\s+", " ".join(lines))


def count(what: str) -> float:
    match what:
        case "docstrings that ask":
            firsts = (re.split(r"(?<=[.?!])\s", text.split("\n\n")[0])[0] for text in docstrings())
            return sum(first.endswith("?") for first in firsts)
        case "errors with an avoided word":
            return sum(bool(avoided_in(message)) for message in messages().values())
        case "help lines of more than twelve words":
            return sum(len(line.split()) > 12 for line in help_lines())
        case "words in a sentence of the docs":
            found = [s for page in PAGES for s in sentences(page.read_text(encoding="utf-8"))]
            return sum(len(s.split()) for s in found) / len(found)
    raise ValueError(what)


@pytest.mark.parametrize("what", LEFT)
def test_no_text_goes_back(what: str) -> None:
    assert count(what) <= LEFT[what]


def test_the_checked_texts_are_there() -> None:
    assert len(list(docstrings())) > 3_000
    assert len(messages()) > 600
    assert len(help_lines()) > 80
    assert len([s for page in PAGES for s in sentences(page.read_text(encoding="utf-8"))]) > 1_000


def test_the_check_finds_avoided_words() -> None:
    assert avoided_in("the lane that is told; see `lakecommit told` and {lane}") == {"lane", "told"}
    assert list(sentences("Title\n=====\n\nOne two. Three\nfour.\n\n.. note:: x\n\n- item\n")) == [
        "One two.",
        "Three four.",
    ]
