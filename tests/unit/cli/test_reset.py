# SPDX-License-Identifier: Apache-2.0
"""How offsets and times are stated on the command line, and what is shown before it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_lakecommit.cli import arguments
from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli.terminal.output import Exit
from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.operations.decisions import prune as cycle_prune
from airflow_provider_lakecommit.operations.decisions.stated import parse_offsets, parse_ranges
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
    with pytest.raises(SpecError, match=r"^the hint \[(LC7035|LC7036)\]"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize("text", ["orders:0=1,orders:1=2,orders[0]=3", '{"orders:0": 1, "orders[0]": 1}'])
def test_a_partition_that_is_named_twice_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"orders\[0\] .*LC7037"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "assert", "spec.yaml"],
        ["reset", "assert", "spec.yaml", "--from-log", "--at", "orders:0=1"],
        ["reset", "assert", "spec.yaml", "--snapshot", "newest"],
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
    assert "file orders does not exist; for a topic orders, give its brokers too" in capsys.readouterr().err


def test_ranges_are_named_by_their_ends() -> None:
    named = parse_ranges(["orders:0=3-5", "orders[0]=9-12", "orders:1=0-1"])
    assert named == {("orders", 0): RangeSet.of((3, 5), (9, 12)), ("orders", 1): RangeSet.of((0, 1))}


@pytest.mark.parametrize("text", ["orders:0", "orders:0=5", "orders:0=5-5", "orders:0=-5", "orders:0=a-b"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="LC7039"):
        parse_ranges([text])


class User:
    """The commands on a landing without brokers."""

    def __init__(self, landing: FakeLanding, patch: pytest.MonkeyPatch) -> None:
        self.landing = landing
        spec = LandingSpec(landing=landing.session.landing, kafka={}, catalog={}, spark={})

        @contextmanager
        def connected(*_: object, **__: object) -> Iterator[object]:
            yield landing.session

        patch.setattr(LandingSession, "connect", connected)
        patch.setattr(arguments, "load", lambda *_: spec)

    def types(self, *words: str) -> int:
        return face.main([*words, "spec.yaml"])

    def init(self, start: str, *more: str) -> int:
        return self.types("reset", "offsets", "--from", start, "--reason", "moved", *more)

    def unblock(self, *more: str) -> int:
        return self.types("reset", "blocked", "--skip", *more)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    landing = FakeLanding(tmp_path)
    yield User(landing, monkeypatch)
    landing.session.close()
    landing.catalog.close()


class TestConfirmation:
    def test_what_gives_nothing_up_is_previewed_too(self, user: User) -> None:
        assert user.init("orders:0=3,orders:1=0") == Exit.UNCONFIRMED
        assert user.init("orders:0=3,orders:1=0", "--yes") == Exit.DONE
        user.landing.cycle()
        assert user.init("earliest", "--yes") == Exit.DONE

    def test_without_yes_what_gives_up_is_only_previewed(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        user.landing.cycle()
        user.landing.source.ends = {P0: 80, P1: 10}
        before = user.landing.snapshots()
        assert user.init("latest") == Exit.UNCONFIRMED == 3
        out, err = capsys.readouterr()
        assert "GIVES UP, never read: orders[0] [20, 80) (60 offsets, about 600 bytes)" in out
        assert "run it again with --yes" in err
        assert user.landing.snapshots() == before
        assert user.init("latest", "--json") == Exit.UNCONFIRMED
        assert json.loads(capsys.readouterr().out)["written"] is False
        assert user.landing.snapshots() == before
        assert user.init("latest", "--yes") == Exit.DONE
        (snapshot,) = user.landing.snapshots()[-1:]
        assert "moved" in snapshot["lakecommit.decisions"]
        assert "gives up orders[0] [20, 80)" in snapshot["lakecommit.decisions"]

    def test_a_terminal_makes_no_difference(
        self, user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        user.landing.cycle()
        user.landing.source.ends = {P0: 80, P1: 10}
        assert user.init("latest") == Exit.UNCONFIRMED
        in_a_pipe = capsys.readouterr()
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stdin, "readline", lambda: "yes\n", raising=False)
        monkeypatch.setenv("NO_COLOR", "1")
        assert user.init("latest") == Exit.UNCONFIRMED
        assert capsys.readouterr() == in_a_pipe

    def test_good_records_of_blocked_ranges_are_given_up_only_by_name_and_agreement(
        self, user: User, capsys: pytest.CaptureFixture[str]
    ) -> None:
        opened = user.landing.open()
        user.landing.report(opened, blocked="too many rejects", rejected=4)
        user.landing.close(opened=opened)
        assert user.unblock("--whole", "--yes") == Exit.UNCONFIRMED
        assert user.unblock("--whole", "--range", "orders:0=0-10") == Exit.UNCONFIRMED
        assert "GIVES UP all of orders[0][0, 10)" in capsys.readouterr().out
        assert user.unblock("--whole", "--range", "orders:0=0-10", "--yes") == Exit.DONE
        assert str(user.landing.session.tables.load(DATA).metadata.current_snapshot_id)
        assert user.unblock("--partition", "orders:1") == Exit.UNCONFIRMED
        assert "GIVES UP the bad records of orders[1][0, 10)" in capsys.readouterr().out
        assert user.unblock("--partition", "orders:1", "--yes") == Exit.DONE
        assert user.landing.printed("to be read again: orders[1] [0, 10)")
        assert user.unblock("--partition", "orders:1", "--yes") == Exit.REFUSED
        assert "nothing is blocked there" in capsys.readouterr().err

    def test_whole_belongs_to_skip(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        assert user.types("reset", "blocked", "--raise", "5:1", "--whole") == Exit.USAGE
        assert "--whole needs --skip" in capsys.readouterr().err


class TestPrune:
    """What is missing of a ledger: shown with its offsets, done with --yes, and kept."""

    @pytest.fixture(autouse=True)
    def deleted(self, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
        user.landing.cycle()
        monkeypatch.setattr(cycle_prune, "_cluster_and_topics", lambda *_: ("cluster-1", {"orders": None}))
        monkeypatch.setattr(cycle_prune, "missing", lambda section, *_: frozenset({P0} & section.starts.keys()))

    def prune(self, user: User, *more: str) -> int:
        return user.types("maintain", "--only", "ledger", "--reason", "crowded", *more)

    def test_without_yes_it_is_printed(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        before = user.landing.snapshots()
        assert self.prune(user) == Exit.UNCONFIRMED
        out, err = capsys.readouterr()
        assert "orders[0] of topic id topic-1, which was deleted: 20 landed offsets" in out
        assert "nothing is written: run it again with --yes" in err
        assert user.landing.snapshots() == before

    def test_user_and_reason_are_kept(self, user: User) -> None:
        before = user.landing.snapshots()
        assert self.prune(user, "--yes") == Exit.DONE
        assert user.landing.snapshots() != before
        decisions = user.landing.snapshots()[-1]["lakecommit.decisions"]
        assert "maintain --only ledger" in decisions
        assert "crowded" in decisions
        assert "takes out orders[0] of topic id topic-1" in decisions


class TestPause:
    """What acts at once, and shows with --dry-run what it would do."""

    def test_a_dry_run_changes_nothing(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        user.landing.cycle()
        before = user.landing.snapshots()
        assert user.types("pause", "--drain", "--dry-run") == Exit.DONE
        out, err = capsys.readouterr()
        assert "is not suspended; it would plan no more windows" in out
        assert "0 open windows would end and be published" in out
        assert "nothing is written" in err
        assert user.types("publish-now", "--dry-run", "--json") == Exit.DONE
        assert json.loads(capsys.readouterr().out)["would_end"] == []
        assert user.landing.snapshots() == before

    def test_reported_slices_of_an_expired_window_are_named(
        self, user: User, capsys: pytest.CaptureFixture[str]
    ) -> None:
        user.landing.report(user.landing.open("dead"))
        user.landing.clock.passes(timedelta(hours=2))
        assert user.types("publish-now", "--dry-run") == Exit.DONE
        out, _ = capsys.readouterr()
        assert "0 open windows would end and be published\n3 reported slices wait to be published" in out

    def test_a_pause_holds_until_the_landing_is_resumed(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        user.landing.cycle()
        assert user.types("pause", "--reason", "the table is restored") == Exit.DONE
        assert user.types("resume", "--dry-run") == Exit.DONE
        assert "it would plan windows again" in capsys.readouterr().out
        assert user.types("pause", "--json") == Exit.DONE
        assert json.loads(capsys.readouterr().out)["changed"] is False
        assert user.types("resume", "--json") == Exit.DONE
        assert json.loads(capsys.readouterr().out)["suspended"] is None
        message = "".join(s.get("lakecommit.decisions", "") for s in user.landing.snapshots())
        assert "the table is restored" in message
