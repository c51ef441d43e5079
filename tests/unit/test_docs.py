# SPDX-License-Identifier: Apache-2.0
"""What the documentation and the messages tell people to type is understood; what they are reported will be
printed is.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from airflow_provider_lakecommit.cli.main import _parser
from tests.support.doc_texts import ROOT, Quote, commands_in_messages, commands_on, known_texts, pages, pieces

EXAMPLES = {
    "--at": "orders:0=1",
    "--close": "past",
    "--connect": "http://localhost:8083",
    "--every": "5m",
    "--from": "earliest",
    "--name": "past",
    "--others": "present",
    "--partition": "orders:0",
    "--raise": "5",
    "--range": "orders:0=1-2",
    "--reason": "moved",
    "--snapshot": "1",
    "--table": "shop.orders",
}
"""A value of each option that may be named without one, or with something that replaces it."""
PLACEHOLDER = re.compile(r".*…|[A-Z][A-Z_:=,0-9-]*(\[:RATIO\])?")


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of a command, and what is said after its name.

    :raises ValueError: there is no such command
    """
    parser, rest = _parser(), words
    while (choices := _choices(parser)) is not None:
        if rest and rest[0] in parser._option_string_actions:
            break
        if not rest or not choices.keys() >= {*rest[0].split("|")}:
            raise ValueError(f"there is no command {' '.join(words)!r}")
        parser, rest = choices[rest[0].split("|")[0]], rest[1:]
    return parser, rest


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    return next((dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)


def problem(command: str, *, typed: bool = False) -> str | None:
    """Why the command line does not understand a command, or ``None``.

    :param typed: as it stands. Else it may leave out its spec, and with that whatever else it is not about
    """
    try:
        parser, rest = parser_of(shlex.split(command)[1:])
    except ValueError as e:
        return str(e)
    if unknown := [w for w in rest if w.startswith("--") and w not in parser._option_string_actions]:
        return f"it has no {unknown[0]}"
    words, named_only = [], not typed and not any(_is_file(w) for w in rest)
    for n, word in enumerate(rest):
        is_placeholder = n > 0 and rest[n - 1] in EXAMPLES and PLACEHOLDER.fullmatch(word)
        words += [EXAMPLES[rest[n - 1]]] if is_placeholder else [] if word == "…" else [word]
        if named_only and word in EXAMPLES and (n + 1 == len(rest) or rest[n + 1].startswith("--")):
            words.append(EXAMPLES[word])
    if named_only:
        words += ["spec.yaml"] if any(a.dest == "spec" for a in parser._actions) else []
        for each in (*parser._actions, *parser._mutually_exclusive_groups):
            each.required = False
    return _refusal(parser, words)


def _is_file(word: str) -> bool:
    return word == "SPEC" or word.endswith(".yaml")


def _refusal(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    lines: list[str] = []

    def error(message: str) -> None:
        lines.append(message)
        raise SystemExit(2)

    parser.error = error  # type: ignore[method-assign, assignment]
    try:
        parser.parse_args(words)
    except SystemExit:
        return lines[0] if lines else None
    return None


def given() -> Iterator[Quote]:
    for page in pages():
        yield from commands_on(page)
    yield from commands_in_messages()


GIVEN = list(dict.fromkeys(given()))


@pytest.mark.parametrize("quote", GIVEN, ids=lambda q: f"{q.where}: {q.text[:80]}")
def test_a_documented_command_is_understood(quote: Quote) -> None:
    assert problem(quote.text, typed=quote.typed) is None, quote


def test_commands_are_found_where_users_read_them() -> None:
    """Else the test above would pass on nothing."""
    found = {q.where for q in GIVEN}
    assert {
        "README.md",
        "docs/reference/errors.rst",
        "docs/reference/_behavior.rst",
        "docs/operate/runbook.rst",
    } <= found
    assert sum(where.endswith(".py") for where in found) > 10
    assert len(GIVEN) > 150


@pytest.mark.parametrize(
    "command",
    [
        "lakecommit lnad orders.yaml",
        "lakecommit connect reset",
        "lakecommit replay orders.yaml",
        "lakecommit reset offsets orders.yaml --from",
        "lakecommit reset assert SPEC --everything",
        "lakecommit reset blocked --raise many",
        "lakecommit reset blocked --raise 5 --skip",
        "lakecommit reset blocked --skip --who",
        "lakecommit doctor SPEC --role planner",
    ],
)
def test_a_command_that_is_not_is_noticed(command: str) -> None:
    assert problem(command) is not None


# -- messages ---------------------------------------------------------------------------------------------------------

RUNBOOK = ("runbook", "stalled_commits", "corrupt_records", "disasters", "prove")
FOLDERS = ("start", "concepts", "guides", "operate", "reference")
KNOWN = known_texts()


def messages() -> list[str]:
    """Quoted messages: what is emphasised in the first columns of the :data:`RUNBOOK`, and with a variable part in all
    pages of :data:`FOLDERS`.
    """
    texts = [(ROOT / "docs" / "operate" / f"{name}.rst").read_text(encoding="utf-8") for name in RUNBOOK]
    rows = [row for text in texts for row in re.findall(r"^   \* - (.*?)^     - ", text, re.MULTILINE | re.DOTALL)]
    found = [m for row in rows for m in _emphasised(row)]
    for page in (page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.rst"))):
        paragraphs = re.split(r"\n\s*\n", page.read_text(encoding="utf-8"))
        found += [m for each in paragraphs for m in _emphasised(each) if "…" in m and "``" not in m]
    return list(dict.fromkeys(m for m in found if m != "what is printed"))


def _emphasised(text: str) -> list[str]:
    return [" ".join(m.split()) for m in re.findall(r"(?<![*\w`])\*(?![\s*])([^*]+)\*(?!\*)", text)]


@pytest.mark.parametrize("message", messages())
def test_a_message_of_the_runbook_is_one_that_is_printed(message: str) -> None:
    assert pieces(message)
    assert [piece for piece in pieces(message) if piece not in KNOWN] == []


def test_the_runbook_quotes_messages_and_invented_ones_are_noticed() -> None:
    assert len(messages()) > 15
    assert "the record is bad" not in KNOWN
    assert pieces("slice … is not … what it was") == ["slice", "is not", "what it was"]


# -- places -----------------------------------------------------------------------------------------------------------


def places() -> list[str]:
    """What the table "Where is…" of CONTRIBUTING names."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| question | place |")[2]
    rows = [line.split("|") for line in table.partition("\n\n")[0].splitlines()[2:]]
    return [place for row in rows for place in re.findall(r"`([^`]+)`", row[2])]


def test_the_contributors_table_names_paths_that_exist() -> None:
    assert len(places()) > 60
    folders = (ROOT, ROOT / "airflow_provider_lakecommit")
    assert [p for p in places() if not any((folder / p).exists() for folder in folders)] == []
