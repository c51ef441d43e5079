# SPDX-License-Identifier: Apache-2.0
"""The glossary for users: few terms, each linked where a page first uses it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from lakecommit_glossary import FOLDERS, GLOSSARY, MOST_TERMS, link_first_uses, patterns

from tests.support.doc_texts import ROOT

DOCS = ROOT / "docs"
TERMS = re.findall(r"^   (\w.*)$", (DOCS / f"{GLOSSARY}.rst").read_text(encoding="utf-8"), re.MULTILINE)


def linked(text: str, page: str = "guides/read") -> list[str]:
    """The links that a page with this text gets."""
    app: Any = SimpleNamespace(
        builder=SimpleNamespace(format="html", get_relative_uri=lambda _, to: f"{to}.html"),
        env=SimpleNamespace(
            get_domain=lambda _: SimpleNamespace(
                data={"objects": {("term", term): (GLOSSARY, f"term-{term.replace(' ', '-')}") for term in TERMS}}
            )
        ),
    )
    doctree = publish_doctree(text)
    before = doctree.astext()
    link_first_uses(app, doctree, page)
    assert doctree.astext() == before
    return [f"{link.astext()}: {link['refuri']}" for link in doctree.findall(nodes.reference)]


def test_the_glossary_is_short() -> None:
    assert 10 < len(TERMS) <= MOST_TERMS


@pytest.mark.parametrize("term", TERMS)
def test_a_page_uses_the_term(term: str) -> None:
    pages = [page for folder in FOLDERS for page in (DOCS / folder).glob("*.rst") if page.stem != "glossary"]
    assert any(patterns([term])[term].search(page.read_text(encoding="utf-8")) for page in pages)


def test_the_first_use_is_linked_and_no_other() -> None:
    text = "Slices of ``ledger`` code\n\nEach ledger of a *landing set* has slices. A ledger."
    assert linked(text) == [
        f"Slices: {GLOSSARY}.html#term-slice",
        f"ledger: {GLOSSARY}.html#term-ledger",
        f"landing set: {GLOSSARY}.html#term-landing-set",
    ]


@pytest.mark.parametrize("page", [GLOSSARY, "index", "project/limits"])
def test_other_pages_get_no_links(page: str) -> None:
    assert linked("A ledger.", page) == []


@pytest.mark.parametrize("text", ["Ledger\n======\n\nText", "``ledger``", "::\n\n   ledger", "term ledger\n    text"])
def test_titles_and_code_get_no_links(text: str) -> None:
    assert linked(text) == []
