# SPDX-License-Identifier: Apache-2.0
"""How offsets and times are told on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli import prune
from airflow_provider_lakecommit.cli import repair as commands
from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.repair import prune as cycle_prune
from airflow_provider_lakecommit.repair.stated import parse_offsets, parse_ranges
from airflow_provider_lakecommit.terminal import confirm
from airflow_provider_lakecommit.terminal.output import Exit, Output
from tests.fakes.session import DATA, P0, P1, FakeLanding


@pytest.mark.parametrize(
    "text",
    [
        "orders:0=15,orders:1=9",
        " orders[0]=15 , orders:1=9",
        '{"orders:0": 15, "orders[1]": 9}',
        '{"orders[0]": "15", "orders[1]": 9}',
    ],
)
def test_offsets_are_a_list_or_a_json_object(text: str) -> None:
    assert parse_offsets(text, "hint") == {("orders", 0): 15, ("orders", 1): 9}


@pytest.mark.parametrize("text", ["", "orders:0", "orders:0=-1", "orders:0=x", '{"orders:0": 1', '{"orders:0": -1}'])
def test_what_is_neither_is_refused_with_the_hint(text: str) -> None:
    with pytest.raises(SpecError, match="the hint"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize("text", ["orders:0=1,orders:1=2,orders[0]=3", '{"orders:0": 1, "orders[0]": 1}'])
def test_a_partition_that_is_named_twice_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"orders\[0\]: which of its offsets"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "attest", "spec.yaml"],
        ["reset", "attest", "spec.yaml", "--from-log", "--at", "orders:0=1"],
        ["reset", "attest", "spec.yaml", "--snapshot", "newest"],
        ["status", "spec.yaml", "--every", "5"],
        ["status", "spec.yaml", "--every", "0m"],
        ["doctor", "spec.yaml", "--every", "5w"],
        ["infer-schema"],
        ["infer-schema", "orders", "--records", "0"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        face.main(arguments)
    assert left.value.code == 2


def test_a_topic_without_brokers_is_a_bad_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert face.main(["infer-schema", "orders"]) == 2
    assert "there is no file orders; of the topic orders, give its brokers too" in capsys.readouterr().err


def test_ranges_are_named_by_their_ends() -> None:
    named = parse_ranges(["orders:0=3-5", "orders[0]=9-12", "orders:1=0-1"])
    assert named == {("orders", 0): RangeSet.of((3, 5), (9, 12)), ("orders", 1): RangeSet.of((0, 1))}


@pytest.mark.parametrize("text", ["orders:0", "orders:0=5", "orders:0=5-5", "orders:0=-5", "orders:0=a-b"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="say TOPIC:PARTITION=FROM-TO"):
        parse_ranges([text])


class Person:
    """The commands on a landing without brokers."""

    def __init__(self, landing: FakeLanding, patch: pytest.MonkeyPatch) -> None:
        self.landing = landing
        self.spec = LandingSpec(landing=landing.session.landing, kafka={}, catalog={}, spark={})

        @contextmanager
        def connected(*_: object, **__: object) -> Iterator[object]:
            yield landing.session

        patch.setattr(commands.LandingSession, "connect", connected)

    def init(self, start: str, **options: bool) -> int:
        return commands.ledger_init(self.spec, Output(), start=start, reason="moved", **options)

    def unblock(self, **options: object) -> int:
        told = {"raise_to": None, "skip": True, "partitions": None, **options}
        return commands.unblock(self.spec, Output(), **told)  # type: ignore[arg-type]


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    landing = FakeLanding(tmp_path)
    yield Person(landing, monkeypatch)
    landing.session.close()
    landing.catalog.close()


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Somebody is there, and types that."""

    def types(answer: str) -> None:
        import io

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(confirm.sys, "stdin", Terminal(answer))
        monkeypatch.setattr(confirm.sys.stderr, "isatty", lambda: True, raising=False)

    return types


class TestConfirmation:
    def test_what_gives_nothing_up_needs_none(self, person: Person) -> None:
        assert person.init("orders:0=3,orders:1=0") == Exit.DONE
        person.landing.cycle()
        assert person.init("earliest") == Exit.DONE

    def test_without_a_terminal_what_gives_up_is_only_shown(
        self, person: Person, capsys: pytest.CaptureFixture[str]
    ) -> None:
        person.landing.cycle()
        person.landing.source.ends = {P0: 80, P1: 10}
        before = person.landing.snapshots()
        assert person.init("latest") == Exit.UNCONFIRMED == 3
        told = capsys.readouterr().err
        assert "GIVES UP, never read: orders[0] [20, 80) (60 offsets, about 600 bytes)" in told
        assert "the same with --yes does it" in told
        assert person.landing.snapshots() == before
        assert person.init("latest", yes=True) == Exit.DONE
        (said,) = person.landing.snapshots()[-1:]
        assert "moved" in said["lakecommit.decisions"]
        assert "gives up orders[0] [20, 80)" in said["lakecommit.decisions"]

    @pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("no\n", 3), ("", 3), ("y\n", 3)])
    def test_a_person_at_a_terminal_is_asked(
        self, person: Person, at_a_terminal: Callable[[str], None], answer: str, code: int
    ) -> None:
        person.landing.cycle()
        person.landing.source.ends = {P0: 80, P1: 10}
        at_a_terminal(answer)
        assert person.init("latest") == code

    def test_good_records_of_blocked_ranges_are_given_up_only_by_name_and_agreement(self, person: Person) -> None:
        opened = person.landing.open()
        person.landing.report(opened, blocked="too many rejects", rejected=4)
        person.landing.close(opened=opened)
        assert person.unblock(whole=True, yes=True) == Exit.UNCONFIRMED
        assert person.unblock(whole=True, ranges=["orders:0=0-10"]) == Exit.UNCONFIRMED
        assert person.unblock(whole=True, ranges=["orders:0=0-10"], yes=True) == Exit.DONE
        assert str(person.landing.session.tables.load(DATA).metadata.current_snapshot_id)
        assert person.unblock(partitions=["orders:1"]) == Exit.DONE
        assert person.landing.said("to be read again: orders[1] [0, 10)")
        with pytest.raises(BlockedRangeError, match="nothing is blocked there"):
            person.unblock(partitions=["orders:1"])

    def test_whole_is_of_skip(self, person: Person) -> None:
        with pytest.raises(SpecError, match="--whole is of --skip"):
            person.unblock(skip=False, raise_to=(5, 1.0), whole=True)


class TestPrune:
    """What is gone of a ledger: shown with its offsets, asked for on a terminal, and kept."""

    @pytest.fixture(autouse=True)
    def gone(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        person.landing.cycle()
        monkeypatch.setattr(cycle_prune, "_asked", lambda *_: ("cluster-1", {"orders": None}))
        monkeypatch.setattr(cycle_prune, "gone", lambda section, *_: frozenset({P0} & section.starts.keys()))

    def prune(self, person: Person, *, yes: bool = False) -> int:
        return prune.ledger_prune(person.spec, Output(), yes=yes, reason="crowded")

    def test_without_a_terminal_it_is_shown(self, person: Person, capsys: pytest.CaptureFixture[str]) -> None:
        before = person.landing.snapshots()
        assert self.prune(person) == Exit.DONE
        told = capsys.readouterr().out
        assert "orders[0] of topic id topic-1, which is gone: 20 landed offsets" in told
        assert "nothing is written: the same with --yes writes it" in told
        assert person.landing.snapshots() == before

    @pytest.mark.parametrize(("answer", "written"), [("yes\n", True), ("no\n", False)])
    def test_on_a_terminal_it_is_asked_for(
        self, person: Person, at_a_terminal: Callable[[str], None], answer: str, written: bool
    ) -> None:
        before = person.landing.snapshots()
        at_a_terminal(answer)
        assert self.prune(person) == Exit.DONE
        assert (person.landing.snapshots() != before) is written

    def test_who_did_it_and_why_is_kept(self, person: Person) -> None:
        assert self.prune(person, yes=True) == Exit.DONE
        said = person.landing.snapshots()[-1]["lakecommit.decisions"]
        assert "crowded" in said
        assert "takes out orders[0] of topic id topic-1" in said
