# SPDX-License-Identifier: Apache-2.0
"""Names are made of words that a reader knows: those of the architecture page, of the field, or of plain English.

A word that is in none of the three is either put into the glossary there, or, better, replaced by one that is.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_provider_lakecommit"

AIRFLOW = """
    airflow asset connection dag hook job lineage note notifications notifier operator plugin provider sensor task
    trigger
"""
KAFKA = """
    admin batch broker cluster connect connector consumer control fenced group header kafka offset partition
    partitioning record retention sink lag topic watched watermark worker deliveries transaction
"""
SPARK = """
    daemon driver engine java launch executor fanout master scratch shuffle spark sql stage staged submit
"""
ICEBERG = """
    append arrow avro branch catalog column commit committer field file iceberg manifest metadata metrics parquet
    schema snapshot sorting spec statistics storage table tag vended inspect overwrite overwriting replace replaced
    replacement compact compacted compaction rewrite bin bins projection debt
    background multipart unfinished upload uploads
"""
PLAIN = """
    agreement uncommitted unpublished unread audit examine lazy grouped
    approved assert direct maintain mistakes
    backpressure compiler decoding effect enums everyday migrate walk
    live first extras cursor renamed deletion account accounting added early end admission admit announced answer
    arguments attempt backlog base before blocking by call change check chosen chunk cli client
    clock close closed codec command complete concurrent condition config confirm core cost counts data dead deadline
    decide decision declared decode decoded decoder diagnosis dictionaries directives doctor done drain earlier edge
    ended entry envelope error event exceptions exit facts failed failure finding fine fold forks format found
    get disposition formatting requested granted paths locations observed corruption corrupt verified unverified
    restored grounds guard head history host identity idle infer inferred info init inputs io json
    key kind known lake lakecommit land last layout letters level light limits local locks lookup loop loss
    main many former joining recent alone provenance per spread allowed locations map missing model modes name node now
    numbers observe octets open opened options other outcome outgoing output over package part partitioned passed pause
    payload plan planning point policy pool port position preload prepare prepared pressure preview probe process
    protocol publish published publisher queue raised range read reader reading recovered redaction reference refusal
    refuse reject rejected relabel repair report reported request rescue rescued rest restart result resume retry
    rewriter rights role routing rows rule ruling run runner sample sampled secrets sender server set settings
    settle settlement severity shape show signals source span stale stall rounds stalled start stated status stop
    stopped summary swap successor swapped tail tally target terminal terms text thread ticket times to totals transient
    trim turns type unblock unavailable unknown updates url values verify voiding waiting waits watch watches wire work
    write writer written body bounds destination measure place planned prunable prune pruned quarantine
    quarantined signature signing unreadable acceptance block hand slicing bar deployment do from link
    nothing progress shown variables wording hours send telemetry alike back brought collector holder named ahead
    following full interval merge merging next pace small trouble upkeep env pack packed page access viewer mark detail
    list remedy remedies app board memory slow hot trend steps action operation with database notes note explained
    backfill lane lanes bounded opening closing suspend suspension way moments delete hard reset replaced removal
    copier survey share question stored adopt adopted adopting adoption scope turn take copied copy moved
    same schema snapshot sorting spec statistics storage table tag vended inspect maintenance expire expired sweep swept
    garbage replay replays replayed selection listing store kept why ready replaying registry registered framed
    framing convert nested skipped resolve resolver scalar branch absent member struct unfit item required branches csv
    raw protobuf confluent message descriptor descriptors combined connected expansion schemas shared left evolve
    evolving evolution changes widened misfit out side refused incompatible paths names one route router fit wise
    transform subject unwrap bundle bundled hash wrong default function overflow rounds
    garbage rarely collected
    newest order upserts upserted supersede superseding
    compare differences example landed proof prove
    array decimal entries failing suspects guarded joined null parents release taken wrapped
    excess rare collection yaml
    scan refresh assertion target referenced migration evaluated asserted result migrated move query
"""


def glossary() -> list[str]:
    """The terms that the section "Words" of the architecture defines."""
    text = (ROOT / "docs" / "project" / "architecture.rst").read_text(encoding="utf-8")
    section = re.split(r"^Words\n-+$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^[^\n]+\n-{3,}$", section, flags=re.MULTILINE)[0]
    return re.findall(r"^(\S.*)\n    \S", section, flags=re.MULTILINE)


def words_of(name: str) -> list[str]:
    """``FoldedLog`` and ``folded_log`` are of two words each; numbers are none."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


KNOWN = frozenset(" ".join((AIRFLOW, KAFKA, SPARK, ICEBERG, PLAIN, *map(" ".join, map(words_of, glossary())))).split())


def unknown(name: str) -> list[str]:
    """Words of a name that are not known, in the singular or the plural."""
    return [word for word in words_of(name) if not KNOWN & {word, f"{word}s", word.removesuffix("s")}]


def public_names(path: Path) -> list[str]:
    """Of a module and of its public classes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [n for n in (path.stem, *(n.name for n in nodes if isinstance(n, ast.ClassDef))) if not n.startswith("_")]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_public_names_are_made_of_known_words(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    names = public_names(path)
    assert {name: words for name in (*names, *place.parts[:-1]) if (words := unknown(name))} == {}


NAMED = ("id", "attr", "name", "arg", "module", "asname")
"""Fields of a syntax tree that hold names."""


def test_every_word_of_the_glossary_is_used() -> None:
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names.update(str(name) for field in NAMED if (name := getattr(node, field, None)) is not None)
    used = {word for name in names for word in words_of(name)}
    terms = {word for term in glossary() for word in words_of(term)}
    assert sorted(terms - used) == []


def test_the_glossary_is_found() -> None:
    assert {"landing", "window", "folded log", "valid-through"} <= set(glossary())


@pytest.mark.parametrize(
    "name", ["Rim", "rim", "Errand", "Lander", "Told", "farewell", "abreast", "LandingErrand", "told_state", "Desk"]
)
def test_a_private_word_is_noticed(name: str) -> None:
    assert unknown(name)
