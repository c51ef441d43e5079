# SPDX-License-Identifier: Apache-2.0
"""Random sequences of everything that can be done with a landing and happen to it. Each step is checked by a model of
every record, by a reader that shares no code with the package, and by `verify`.

In memory: real commands, sessions, tasks and tables, over a cluster in memory. A few sequences run in `make test`,
2,000 as a campaign, 2,000 more on landings that upsert, and 100 on real brokers. A failure shows the line that plays
its steps again. ``python -m tests.support.campaign SEED`` also finds the fewest steps that fail. ``… 0-1199 --processes
2`` plays many and shows which pairs and triples of operations were executed; ``--shape`` says what they are played on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection, Span
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.provenance import Provenance
from tests.fakes.broker import MemoryBroker, MemoryReader, MemoryRecord
from tests.support.campaign.changes import Change, UpsertModel, Way
from tests.support.campaign.command import LENGTH, steps_of
from tests.support.campaign.console import Answer
from tests.support.campaign.model import Born, Model, Nature
from tests.support.campaign.operations import operations_of
from tests.support.campaign.pairs import Covered
from tests.support.campaign.play import CampaignError, memory_player, play, remedies
from tests.support.campaign.reader import Found, Reading
from tests.support.campaign.real import real_player
from tests.support.campaign.shrink import shrunk
from tests.support.campaign.steps import Step, parsed, written
from tests.support.campaign.upserts import WAYS

pytestmark = pytest.mark.faults

SMOKE = [*(("plain", n) for n in range(2)), ("set", 0), ("several", 0)]
FOUND = {
    "a remedy of one landing of a set": (
        "set",
        "lane-finish:375741 reset-offsets:261644 backfill-some:1002358 reset-earliest:740690 truncation:250593 "
        "topic-anew:440296 backfill:1015644 expire:17884 replay-some:762951 replay-some:346314 "
        "backfill-some:625877 set-change:132192",
    ),
    "rows that a rolled-back table had beyond a log's lost end": (
        "plain",
        "truncation:299173 sweep:1031688 reset-delete:208391 replay-some:35126 reset-blocked:994162 "
        "land:880977 rollback:213562 sweep:299586 reset-delete:641594 partitions:635349 reset-offsets:385805 "
        "reset-offsets:662355",
    ),
    "what one table lacks before a live start that moved": (
        "plain",
        "reset-fill:918158 lane-finish:195196 land:1013079 compaction:514957 backfill-some:606292 "
        "compaction:302074 backfill-some:1042434 evolve:847168 reset-delete:2047 rollback:278824 replay-"
        "some:639712 reset-earliest:1031676",
    ),
    "what one table lacks after two holes and a deletion": (
        "plain",
        "backfill:341052 reset-fill:565566 reset-blocked:855229 land:157148 lane-close:526618 reset-fill:6218 "
        "expire:228259 reset-delete:573819 reset-latest:176184 reset-blocked:719703 replay:169248 "
        "rollback:404355",
    ),
    "a replay by other rules that is rolled back in one table": (
        "plain",
        "backfill-some:11988 rule:1040489 retention:373340 land:269044 reset-delete:547282 reset-"
        "blocked:353827 expire:262964 replay-some:485681 lane-finish:577922 land:298365 rollback:932991 "
        "rollback:123308",
    ),
    "a range that was given up, read after all, and rolled back in one table": (
        "plain",
        "sweep:795749 partitions:803381 reset-latest:350815 replay:225904 partitions:843179 lane-finish:43372 "
        "land:51929 lane-close:124661 reset-delete:539474 land:87723 partitions:149759 rollback:870837",
    ),
    "a filled range that one table lost before the live lane's start": (
        "plain",
        "replay:665732 dead-letters:771766 backfill-some:859861 reset-blocked:1000002 reset-hard:821883 "
        "land:783045 backfill:433399 compaction:344292 reset-hard:162780 follow:373895 rollback:777192 "
        "backfill:959550",
    ),
    "a lane that is open beside a reset of both tables and a rollback": (
        "plain",
        "land:805556 lane-finish:294426 lane-finish:863984 land:270116 reset-fill:631210 sweep:454319 "
        "sweep:65059 sweep:410230 land:243071 reset-hard:215358 rollback:67349 land:651329",
    ),
    "a replay that is whole in one table and open in the other after a rollback": (
        "plain",
        "expire:793285 reset-offsets:92569 land:676851 reset-delete:909203 replay:758116 reset-delete:692901 "
        "rollback:541300 reset-delete:649453 land:241470 backfill:526639 truncation:327753 backfill:137156",
    ),
    "a replay of given-up ranges that is rolled back in one table": (
        "plain",
        "backfill:969547 reset-latest:73731 expire:937197 lane-close:817074 rollback:684154 "
        "reset-latest:19500 reset-fill:368029 compaction:343328 replay:622158 land:202468 "
        "backfill-some:266455 rollback:98571",
    ),
    "a topic made anew that two tables begin at different offsets": (
        "plain",
        "lane-finish:458517 reset-earliest:802269 topic-anew:358241 replay-some:925650 replay-some:623973 "
        "reset-fill:125919 truncation:215797 rollback:810476 land:798308 follow:703455 land:496791 "
        "reset-earliest:950058",
    ),
    "a replay that is half rolled back over a truncated log": (
        "plain",
        "replay-some:130393 rollback:710851 evolve:907895 backfill:241411 land:1009477 replay:365130 "
        "truncation:883377 backfill-some:739252 backfill-some:965336 rollback:497111 land:417568 "
        "follow:884570",
    ),
    "a replay over records of a closed lane that were given up in place of lost ones": (
        "plain",
        "land:81830 land:82085 reset-delete:484376 dead-letters:412197 replay:802231 truncation:33947 "
        "reset-latest:164223 lane-finish:183500 dead-letters:105865 reset-latest:693922 replay:458736 "
        "topic-anew:103082",
    ),
    "a replay that is open in the rows table alone after a rollback": (
        "plain",
        "replay:588540 lane-close:48327 compaction:136443 truncation:749719 reset-offsets:536632 "
        "rollback:893752 expire:983755 reset-offsets:449233 backfill:430967 dead-letters:426142 sweep:946787 "
        "truncation:219259",
    ),
    "a log that lost its end in a range that was replayed": (
        "sink",
        "land:777960 replay:1564 lane-finish:265099 truncation:19735 reset-delete:1018103 adopt:425648 "
        "land:603623 reset-hard:422933 retention:935869 reset-blocked:170919 compaction:700848 truncation:253231",
    ),
    "a log that lost an aborted transaction at its end": ("plain", "land:516806 truncation:866263"),
    "a replay of a log that lost its end": ("plain", "truncation:773320 sweep:127633 replay:425862"),
    "a reject of a closed lane whose dead-letter table was rolled back": (
        "set",
        "expire:593233 truncation:467232 land:981730 compaction:583274 topic-anew:1015027 land:288192 "
        "topic-anew:380271 topic-anew:576319 backfill-some:765009 rollback:1029137 reset-earliest:737176",
    ),
    "a log that lost its end behind what a sink had landed": (
        "sink",
        "reset-offsets:272365 truncation:124379 land:423589 lane-finish:966086 compaction:111518 expire:370257 "
        "backfill:656854 reset-earliest:238244 truncation:525257 reset-offsets:681695 land:303681 truncation:204611",
    ),
    "a ledger that is lost behind what a sink had landed": (
        "sink",
        "rollback:434565 dead-letters:46969 reset-delete:442310 reset-blocked:114147 hand-back:286938 rollback:806672 "
        "reset-fill:63639 replay:326383 reset-latest:808309 land:517302 sweep:391246 rollback:197118",
    ),
    "a data table that was rolled back to a landing's turn": (
        "sink",
        "truncation:216526 expire:262305 hand-back:669283 truncation:994900 replay-some:942461 sweep:863988 "
        "truncation:437576 retention:419044 rule:664595 backfill-some:703738 reset-fill:689420 rollback:896263",
    ),
    "a dead-letter table whose ledger was set anew in a sink's turn": (
        "sink",
        "land:921617 hand-back:379873 rollback:257986 reset-fill:200316 compaction:1030122 reset-offsets:646383 "
        "evolve:512301 partitions:840333 replay:26665 land:833859 backfill-some:336773 land:320275",
    ),
    "a lane that is open in one of two tables after a rollback": (
        "plain",
        "reset-blocked:219381 backfill-some:26066 rule:1026866 compaction:447706 land:985578 reset-fill:154016 "
        "lane-close:948550 replay-some:789891 truncation:771401 rollback:129700 topic-anew:212121 reset-latest:282468",
    ),
    "rows deleted in one of two tables, whose ledger was rolled back": ("plain", "rollback:892493 reset-delete:37378"),
    "a hard reset of a table that was rolled back": ("plain", "retention:384544 rollback:322751 reset-hard:369055"),
    "rows deleted where the other table had passed the range without a row": (
        "plain",
        "evolve:98428 rollback:118839 compaction:170882 land:576307 reset-latest:68654 expire:431783 "
        "lane-finish:115380 dead-letters:984873 rule:497755 land:182569 land:815784 reset-delete:660658",
    ),
    "reported behind a blocked range of a topic that was made anew": (
        "plain",
        "reset-offsets:234603 lane-close:742169 rule:908450 reset-earliest:187158 reset-delete:670032 rule:624026 "
        "retention:299461 land:988723 topic-anew:125336 land:999796 reset-latest:581750",
    ),
    "rows deleted beside an open lane that has reported other ranges": (
        "plain",
        "rule:931536 compaction:1021157 reset-fill:291872 truncation:613661 evolve:347303 rollback:700381 "
        "backfill:807003 land:720032 lane-finish:788446 reset-offsets:818388 retention:523663 rule:563714",
    ),
    "rows counted of a reading that begins with aborted records": ("plain", "reset-delete:557359"),
    "a hole left to a lane where the log differs before the first offset": (
        "plain",
        "retention:906153 lane-finish:879051 backfill:84886 truncation:908798 dead-letters:592568 rule:692907 "
        "reset-fill:855932",
    ),
    "a dead-letter table that was rolled back before a sink's turn": ("sink", "rollback:172457 hand-back:51850"),
    "a dead-letter table that was rolled back in a sink's turn": (
        "sink",
        "reset-offsets:851168 hand-back:1019807 rollback:87884",
    ),
    "a data table that was rolled back in a sink's turn": ("sink", "hand-back:752854 sink:44076 rollback:57850"),
    "a data table that was rolled back in the middle of a sink's turn": (
        "sink",
        "hand-back:752854 sink:44076 sink:777 rollback:57850",
    ),
    "a log that lost its end where a lane had not read it yet": (
        "sink",
        "retention:967573 reset-fill:679743 truncation:190790 lane-finish:147535",
    ),
    "a log that lost its end before its table was handed back": (
        "sink",
        "reset-blocked:1003354 dead-letters:156635 replay:993998 truncation:9070 sweep:24784 reset-delete:546705 "
        "hand-back:578200 adopt:843416 truncation:984448 reset-delete:439673 land:730567 adopt:973456",
    ),
    "a dead-letter table that lacks a range in front of what a sink has landed": (
        "sink",
        "hand-back:773019 sink:113474 retention:169473 reset-hard:473402 backfill:618252 reset-fill:49986 sweep:758064 "
        "reset-delete:26583 evolve:621264 truncation:572939 reset-fill:769709 reset-latest:487801",
    ),
    "a stated offset behind the one from which a log is another one": (
        "sink",
        "lane-close:1008732 sweep:982408 truncation:470630 sweep:808072 replay-some:1001039 dead-letters:729685 "
        "dead-letters:784404 hand-back:572601 reset-delete:624272 sweep:711519 compaction:44180 sweep:126434",
    ),
    "a topic that was made anew in a sink's turn, and handed back again": (
        "sink",
        "sweep:550806 hand-back:703554 rollback:899761 topic-anew:228244 reset-latest:361427 sweep:456272 "
        "reset-delete:643946 hand-back:146755 replay-some:680454 sink:171267 replay-some:942808 compaction:134911",
    ),
    "a connector that has offsets of a partition which a topic had before": (
        "sink",
        "retention:29390 topic-anew:329055 reset-offsets:249280 hand-back:457889 sink:72379 adopt:45583",
    ),
    "what a sink landed, and a rolled-back table reads again together with the dead-letter table": (
        "sink",
        "hand-back:358433 partitions:74929 sink-announces:595746 retention:914544 compaction:870985 adopt:278608 "
        "rollback:883160 sink-announces:812742 partitions:203218 reset-offsets:944561 hand-back:770984 rollback:30930",
    ),
    "a replay over records that were given up in place of lost ones": (
        "plain",
        "truncation:623311 compaction:481978 rollback:706858 reset-fill:233113 rule:682982 land:571759 rollback:945382 "
        "retention:96074 follow:607614 truncation:443766 replay-some:475485 land:773939",
    ),
    "rows with a key that were rolled back together with a column of theirs": (
        "upsert-soft",
        "backfill:248301 rollback:552634 compaction:468222 reset-earliest:750848 reset-earliest:546103 "
        "compaction:313951 reset-latest:337747 rollback:577408 again:22240",
    ),
    "a table with a row per key that another engine rewrote": (
        "upsert-soft",
        "backfill:4416 kill:934044 reset-earliest:479749 expire:214385 sweep:665698 compaction:64151 again:46812 "
        "follow:53363 land:19304 kill:799443",
    ),
    "reported by a killed run before its log lost the end": (
        "upsert-hard",
        "kill:485724 truncation:1008414 land:972146",
    ),
    "a range of a topic made anew that one table gave up and reads after all": (
        "upsert-hard",
        "reset-blocked:487933 race:370543 kill:35777 reset-fill:442335 topic-anew:761366 reset-offsets:147219 "
        "follow:264450 backfill:81604 reset-fill:419044 rollback:324116 land-some:1006558 reset-latest:937283",
    ),
    "offsets that one table has behind a range that it lacks, and reads again": (
        "upsert-hard",
        "rollback:552634 reset-earliest:546103 land-some:756380 reset-latest:337747 rollback:577408",
    ),
    "reported for one table, and passed by the other without a row, before a reset that goes back": (
        "upsert-envelope",
        "reset-offsets:438567 kill:762827 retention:488520 again:635743",
    ),
    "a column that is added after the rows of its first values": (
        "upsert-soft",
        "again:56694 rollback:258237 race:555645 partitions:434293 race:580331 race:114078",
    ),
    "ignored deletes at the end of a log": ("upsert-ignore", "reset-hard:974447"),
    "what a killed run read of a former topic, published after a backfill of its successor": (
        "upsert-soft",
        "topic-anew:582220 race:593924 kill:129117 topic-anew:787208 backfill:743179",
    ),
    "a dead-letter table that alone goes back to what was given up and read after all": (
        "upsert-late",
        "reset-latest:348865 reset-latest:491035 again:1019175 race:241645 rollback:876994",
    ),
    "an older range that a table with hard deletes gave up": (
        "upsert-envelope",
        "race:891284 again:794790 land:131221 reset-latest:3939 land-some:166920 lane-close:599425 rollback:892134 "
        "hold:187692 rollback:725761 reset-earliest:620018 race:676128 replay:261683",
    ),
    "a table that is handed back after a replay": (
        "sink",
        "land:942111 backfill:458736 replay:374599 hand-back:905250 sink:382881",
    ),
    "a lane over what a sink has landed": (
        "sink",
        "rule:903564 land:308176 replay:218045 expire:494775 retention:200795 reset-fill:175824 sweep:120750 "
        "adopt:113710 evolve:304381 adopt:328686 retention:284805 replay-some:667741",
    ),
    "a reset goes around what a backfill has read of a recreated topic": (
        "upsert-soft",
        "backfill:970856 topic-anew:810809 land-some:996031 backfill:432105 race:180583 dead-letters:474882 "
        "land:138288 dead-letters:911890 race:492888 backfill-some:827304 reset-latest:369622 reset-earliest:56773",
    ),
    "a backfill of a recreated topic has the deletes": (
        "upsert-ignore",
        "backfill-some:565450 compact:644362 arrive:357102 topic-anew:67895 reset-latest:430031 arrive:773507 "
        "hold:229734 topic-anew:381026 truncation:941703 kill:826276 backfill:466091 kill:724462",
    ),
}
"""Sequences of which each has lost or doubled records, came to no end, or was taken for wrong."""
CHANGES = [(shape, n) for shape in WAYS for n in range(4)]
MANY, EACH = {"plain": 1_200, "sink": 400, "set": 400, "several": 400, **dict.fromkeys(WAYS, 400)}, 50
CHUNKS = [(shape, first) for shape, many in MANY.items() for first in range(0, many, EACH)]
REAL = range(10_000, 10_100)


@pytest.mark.heavy(but=("plain-0",))
@pytest.mark.parametrize(("shape", "seed"), SMOKE)
def test_a_sequence_in_memory(tmp_path: Path, shape: str, seed: int) -> None:
    with memory_player(tmp_path, shape) as player:
        play(player, steps_of(seed, shape))


@pytest.mark.heavy(but=("upsert-hard-0", "upsert-soft-0", "upsert-late-0"))
@pytest.mark.parametrize(("shape", "seed"), CHANGES)
def test_a_sequence_of_changes_in_memory(tmp_path: Path, shape: str, seed: int) -> None:
    with memory_player(tmp_path, shape) as player:
        play(player, steps_of(seed, shape))
        assert isinstance(player.landing.model, UpsertModel)
        assert player.landing.model.compared > 50


@pytest.mark.heavy
@pytest.mark.parametrize(("shape", "steps"), FOUND.values(), ids=FOUND)
def test_a_sequence_that_was_wrong_once(tmp_path: Path, shape: str, steps: str) -> None:
    with memory_player(tmp_path, shape) as player:
        play(player, parsed(steps))


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "first"), CHUNKS)
def test_many_sequences_in_memory(tmp_path: Path, shape: str, first: int) -> None:
    covered, failures = Covered(tuple(operations_of(shape))), list[str]()
    for seed in range(first, first + EACH):
        with memory_player(tmp_path / str(seed), shape) as player:
            try:
                covered.add(play(player, steps_of(seed, shape)))
            except CampaignError as e:
                failures.append(f"seed {seed}: {e}")
    print("\n".join(covered.lines()))
    assert failures == [], "\n\n".join(failures)


@pytest.mark.campaign
@pytest.mark.integration
@pytest.mark.parametrize("seed", REAL)
def test_a_sequence_on_real_brokers(tmp_path: Path, bootstrap: str, control_topic: str, seed: int) -> None:
    with real_player(tmp_path, bootstrap, control_topic) as player:
        play(player, steps_of(seed, real=True))


# -- the campaign notices ---------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Model:
    """Three records of one partition, which the source still has."""
    logs = MemoryBroker()
    logs.create("orders", 1)
    logs.produce("orders", [(str(n), "{}") for n in range(3)], 0)
    topic_id = logs.topics["orders"].topic_id
    return Model(logs, born={n: Born("orders", topic_id, 0, n) for n in range(3)})


def found(rows: Sequence[int] = (), dead: Sequence[int] = ()) -> Found:
    return Found(Counter(rows), Counter(dead))


def answer(code: int = 0, log: str = "") -> Answer:
    return Answer(arguments=("land", "SPEC"), code=code, results=(), log=log)


def test_records_that_are_once_in_one_table_are_right(model: Model) -> None:
    assert model.evaluate(Nature.LANDS, found([0, 1], [2]), answer()) == []
    assert (model.lost(), model.wrong) == ([], False)


@pytest.mark.parametrize(
    ("rows", "dead", "message"),
    [([0, 0, 1, 2], [], "more than once in the data"), ([0, 1], [2, 2], "dead-letter"), ([0, 1], [1], "both tables")],
)
def test_a_record_that_is_there_twice_is_wrong(model: Model, rows: list[int], dead: list[int], message: str) -> None:
    (problem,) = model.evaluate(Nature.LANDS, found(rows, dead), answer())
    assert message in problem
    assert model.wrong


def test_a_dead_letter_that_became_a_row_is_right_and_stays_so(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0, 1], [2]), answer())
    assert model.evaluate(Nature.LANDS, found([0, 1, 2], [2]), answer(), revives=True) == []
    assert model.evaluate(Nature.KEEPS, found([0, 1, 2], [2]), answer()) == []


def test_a_row_that_goes_unnamed_is_wrong(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0, 1, 2]), answer())
    log = "DELETES of shop.rows: 1 rows of orders[0] [1, 2); 1 files are dropped"
    (problem,) = model.evaluate(Nature.DECIDES, found([0]), answer(log=log))
    assert "1 records (2 (orders[0]@2" in problem


def test_a_row_that_was_deleted_by_name_must_come_back_while_it_can_be_read(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0, 1, 2]), answer())
    log = "DELETES of shop.rows: 2 rows of orders[0] [1, 3); 1 files are dropped"
    assert model.evaluate(Nature.DECIDES, found([0]), answer(log=log)) == []
    assert model.lost() == model.missing()
    assert "2 records" in model.lost()[0]
    model.logs.remove_before("orders", 0, 3)
    assert model.lost() == []


def test_a_record_that_was_given_up_by_name_may_be_missing(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0]), answer())
    model.evaluate(Nature.DECIDES, found([0]), answer(log="  GIVES UP, never read: orders[0] [1, 3) (2 offsets)"))
    assert model.lost() == []


def test_a_refusal_that_changes_rows_is_wrong(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0]), answer())
    assert model.evaluate(Nature.DECIDES, found([0, 1]), answer(1)) == ["the operation was refused, and rows changed"]


def test_rows_that_another_engine_takes_out_are_lost_by_it_alone(model: Model) -> None:
    model.evaluate(Nature.LANDS, found([0, 1, 2]), answer())
    model.logs.remove_before("orders", 0, 3)
    assert model.evaluate(Nature.FOREIGN, found([0])) == []
    assert (model.lost(), model.touched) == ([], True)


@dataclass
class Keyed:
    """A model of changes of key 1: set, set, deletion, set; ``row`` is how a reader finds one."""

    deletes: str = "hard"
    readings: list[Reading] = field(default_factory=list)
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        logs = MemoryBroker()
        logs.create("orders", 1)
        self.place = SourcePartition("orders", 0, logs.topics["orders"].topic_id)
        self.model = UpsertModel(logs, way=Way(deletes=self.deletes, key={"k": "long"}))
        for kind in ("set", "set", "deletion", "set"):
            self._produce(kind)

    def _produce(self, kind: str) -> None:
        log, n = self.model.logs.topics["orders"].partitions[0], len(self.model.born) + 1
        self.model.born[n] = Born("orders", self.place.topic_id, 0, log.end)
        self.model.changes[n] = Change(
            id=n,
            key=(1,),
            kind=kind,
            version=0,
            more=False,
            log=log,
            epoch=len(log.epochs) - 1,
            incarnation=0,
            partition=0,
            offset=log.end,
        )
        self.model.logs.produce("orders", [("1", kind)], 0)

    def truncate(self, to: int) -> None:
        """The log loses its end, and gets another change there."""
        self.model.logs.truncate("orders", 0, to)
        self._produce("set")

    def report(self, start: int, end: int) -> None:
        """A slice was read and reported, and its rows are in no table yet."""
        self.readings.append(Reading(1, Coverage({self.place: RangeSet.of((start, end))})))
        self.found = replace(self.found, readings=(*self.readings,))
        self.model.evaluate(Nature.LANDS, self.found, answer(1))

    def evaluate(
        self,
        landed: int,
        *rows: dict[str, Any],
        covered: int | None = None,
        read: int | None = None,
        ignored: frozenset[str] = frozenset(),
    ) -> list[str]:
        """What is wrong with rows once the ledger has so many offsets; those that are read are reported by now."""
        coverage = Coverage({self.place: RangeSet.of((0, landed))})
        section = LedgerSection(
            landing="orders",
            lane="live",
            cluster_id="cluster",
            epoch=uuid4(),
            spec_version="",
            starts={self.place: 0},
            covered=coverage if covered is None else Coverage({self.place: RangeSet.of((0, covered))}),
            control=ControlPosition(cluster_id="cluster", topic="c", topic_id="c", partition=0, read_from=0, low=None),
            provenance=(Provenance.counted(1, coverage, landed),),
        )
        reported = Coverage({self.place: RangeSet.of((0, landed if read is None else read))})
        if rest := reported - Coverage.union(before.coverage for before in self.readings):
            self.readings.append(Reading(1, rest, ignored))
        self.found = Found(live=rows, sections=[section], readings=(*self.readings,))
        return self.model.evaluate(Nature.LANDS, self.found, answer())


def row(n: int, **more: Any) -> dict[str, Any]:
    own = {"k": 1, "id": n, "name": f"n{n}", "kafka_partition": 0, "kafka_offset": n - 1, "kafka_generation": 1}
    return {**own, **more}


def test_the_newest_landed_change_of_each_key_is_right_and_nothing_else() -> None:
    assert Keyed().evaluate(1, row(1)) == []
    assert Keyed().evaluate(2, row(2)) == []
    assert Keyed().evaluate(3) == []
    assert Keyed().evaluate(4, row(4)) == []
    soft = row(3, id=None, name=None, _is_deleted=True)
    assert Keyed("soft").evaluate(3, soft) == []
    assert Keyed("ignore").evaluate(3, row(2)) == []


@pytest.mark.parametrize(
    ("landed", "rows", "message"),
    [
        (2, [row(1)], "is not its newest change"),
        (2, [], "is not its newest change"),
        (3, [row(2)], "is not its newest change"),
        (2, [row(1), row(2)], "has two rows"),
        (2, [row(4)], "is no landed change"),
        (2, [row(2, name="n1")], "has other values"),
        (2, [row(2, kafka_offset=0)], "is no landed change"),
    ],
)
def test_rows_that_are_not_are_wrong(landed: int, rows: list[dict[str, Any]], message: str) -> None:
    assert any(message in problem for problem in Keyed().evaluate(landed, *rows))


def test_a_key_that_is_read_again_may_have_an_older_state_until_then() -> None:
    keyed = Keyed()
    assert keyed.evaluate(4, row(1), covered=1) == []
    assert any("is not its newest" in problem for problem in keyed.evaluate(4, row(1)))


def test_what_was_given_up_is_no_change_until_it_is_read_after_all() -> None:
    keyed = Keyed()
    assert keyed.evaluate(4, row(2), read=2) == []
    assert any("is no landed change" in problem for problem in keyed.evaluate(4, row(4), read=2))
    keyed.report(2, 4)
    assert keyed.evaluate(4, row(4)) == []


def test_a_field_is_missing_in_a_row_only_if_its_report_says_so() -> None:
    for ignored, exceeded in ((frozenset({"more"}), False), (frozenset[str](), True)):
        keyed = Keyed()
        keyed.model.changes[4].more = True
        found = keyed.evaluate(4, row(4, more=None), ignored=ignored)
        assert any("other values: ['more']" in problem for problem in found) is exceeded


def test_changes_that_give_no_row_need_not_be_in_a_ledger_once_they_were_read() -> None:
    keyed = Keyed("ignore")
    keyed.evaluate(2, row(2))
    assert any("2 records" in problem for problem in keyed.model.missing())
    keyed.report(2, 3)
    assert any("1 records (4 (" in problem for problem in keyed.model.missing())
    keyed.evaluate(4, row(4))
    assert keyed.model.missing() == []


@pytest.mark.parametrize("reported", ["before", "after"])
def test_the_change_of_an_offset_is_that_which_its_log_had_when_it_was_reported(reported: str) -> None:
    """A slice of a run that was killed is published later, whatever its log has lost by then."""
    keyed = Keyed()
    keyed.evaluate(3)
    if reported == "before":
        keyed.report(3, 4)
    keyed.truncate(3)
    if reported == "after":
        keyed.report(3, 4)
    lost, kept = row(4), row(5, kafka_offset=3)
    right, wrong = (lost, kept) if reported == "before" else (kept, lost)
    assert keyed.evaluate(4, right) == []
    assert any("is no landed change" in problem for problem in keyed.evaluate(4, wrong))


def test_a_reader_that_returns_records_its_log_has_lost_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a replica that was not truncated would."""
    lost: dict[int, MemoryRecord] = {}
    truncate = MemoryBroker.truncate

    def kept(broker: MemoryBroker, topic: str, partition: int, offset: int) -> None:
        log = broker.topics[topic].partitions[partition]
        lost.update((r.offset(), r) for r in log.between(offset, log.end))
        truncate(broker, topic, partition, offset)

    def stale(reader: MemoryReader, span: Span) -> list[MemoryRecord]:
        return [lost.get(r.offset(), r) if span.partition.partition == 0 else r for r in read(reader, span)]

    read = MemoryReader._records
    steps = parsed("truncation:1008414 land:972146")
    with memory_player(tmp_path / "right", "upsert-hard") as player:
        play(player, steps)
    monkeypatch.setattr(MemoryBroker, "truncate", kept)
    monkeypatch.setattr(MemoryReader, "_records", stale)
    with memory_player(tmp_path / "stale", "upsert-hard") as player, pytest.raises(CampaignError, match="no landed"):
        play(player, steps)


def test_remedies_are_the_commands_of_a_text_that_are_complete() -> None:
    text = "either `lakecommit reset offsets SPEC --from OFFSETS`, or `lakecommit backfill SPEC --close past`; `latest`"
    assert list(remedies(text)) == [("backfill", "SPEC", "--close", "past", "--yes")]


# -- steps, pairs, and the smallest failing part ----------------------------------------------------------------------


def test_steps_are_read_as_they_were_written() -> None:
    steps = steps_of(3)
    assert (len(steps), parsed(written(steps))) == (LENGTH, steps)
    assert steps == steps_of(3) != steps_of(4)


def test_a_failing_sequence_is_shrunk_to_what_it_needs() -> None:
    needed = {3, 7, 8}
    assert shrunk(range(12), lambda steps: needed <= set(steps)) == (3, 7, 8)
    assert shrunk([Step("land", 1)], lambda _: True) == ()


def test_executed_pairs_and_triples_are_counted_and_printed() -> None:
    covered, other = Covered(("land", "replay")), Covered(("land", "replay"))
    covered.add(["land", "replay", "land"])
    other.add(["land", "land"])
    covered.merge(other)
    assert list(covered.lines()) == [
        "2 sequences, 5 executed steps of 2 operations",
        "pairs: 3 of 4",
        "triples: 1 of 8",
        "  land: 4 times, before 2 others",
        "  replay: 1 times, before 1 others",
        "pairs never executed: replay → replay",
    ]
