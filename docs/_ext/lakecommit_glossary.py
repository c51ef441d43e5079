# SPDX-License-Identifier: Apache-2.0
"""Links from the first use of a term on a page to the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

GLOSSARY = "concepts/glossary"
FOLDERS = ("start/", "concepts/", "guides/", "operate/", "reference/")
MOST_TERMS = 20
_VARIANTS = {"commit cycle": "(?:commit )?cycles?", "claim": "claims?", "voided": "voided", "staged": "staged"}
_OTHER_MARKUP = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.term,
    nodes.caption,
    nodes.thead,
    nodes.raw,
    addnodes.desc_signature,
)


def patterns(terms: list[str]) -> Mapping[str, re.Pattern[str]]:
    """Return what is searched for each term: longer terms first, in the singular and the plural."""
    ordered = sorted(terms, key=len, reverse=True)
    return {
        t: re.compile(rf"(?<![\w-]){_VARIANTS.get(t, re.escape(t) + 's?')}(?![\w-])", re.IGNORECASE) for t in ordered
    }


def link_first_uses(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link each term where the page first uses it."""
    if app.builder.format != "html" or not docname.startswith(FOLDERS) or docname == GLOSSARY:
        return
    objects = app.env.get_domain("std").data["objects"]
    targets = {name: label for (kind, name), (page, label) in objects.items() if kind == "term" and page == GLOSSARY}
    left = dict(patterns(list(targets)))
    uri = app.builder.get_relative_uri(docname, GLOSSARY)
    for text in list(_plain_texts(doctree)):
        parts: list[nodes.Node] = [text]
        for term in list(left):
            for part in parts:
                if isinstance(part, nodes.Text) and (found := left[term].search(part)):
                    link = nodes.reference(
                        "", found[0], internal=True, refuri=f"{uri}#{targets[term]}", classes=["glossary-term"]
                    )
                    place = parts.index(part)
                    parts[place : place + 1] = [
                        nodes.Text(part[: found.start()]),
                        link,
                        nodes.Text(part[found.end() :]),
                    ]
                    del left[term]
                    break
        if len(parts) > 1 and text.parent is not None:
            text.parent.replace(text, parts)


def _plain_texts(doctree: nodes.document) -> Iterator[nodes.Text]:
    for text in doctree.findall(nodes.Text):
        parent: nodes.Node | None = text.parent
        while parent is not None and not isinstance(parent, _OTHER_MARKUP):
            parent = parent.parent
        if parent is None:
            yield text
