# SPDX-License-Identifier: Apache-2.0
"""Play a sequence of steps on one landing, evaluate each step, and finish what is open at its end.

Contract: :func:`play` returns the executed kinds, or raises :class:`CampaignError`, whose text has the steps, what each
command answered, and the one line that plays them again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fakes.broker import MemoryBroker
from tests.fakes.plugged import plugged_in
from tests.support.campaign.changes import UpsertModel
from tests.support.campaign.console import NOTHING, Answer, console
from tests.support.campaign.landing import PARTITIONS, TOPICS, CampaignLanding, set_of, several_of, spec_of
from tests.support.campaign.model import Model, Nature
from tests.support.campaign.operations import OPERATIONS
from tests.support.campaign.reader import ROWS, SeveralReader, TableReader, UpsertReader
from tests.support.campaign.sink import ADOPT, CONTROL, is_sinks, land_by_sink, make_table
from tests.support.campaign.speed import fast_manifests
from tests.support.campaign.steps import Step, written
from tests.support.campaign.upserts import WAYS, UpsertLanding, upserting

__all__ = ["CampaignError", "Player", "memory_player", "play"]

ROUNDS = 8
"""How often the end of a sequence may need a remedy."""
REMEDY = re.compile(r"`lakecommit ([^`]*)`")
ROLL = re.compile(
    r"(?:the ledger of (\S+) \(branch main\) is lost.*)?roll the branch (?:to|forward to|back to) snapshot (\d+)"
)
_PLACEHOLDERS = re.compile(r"…|\b(NAME|TIME|OFFSETS|OFFSET|ID|FILE|N|URL)\b")
_DOES = re.compile(r"(?:land|backfill|reset)\b(?!.*--list)|dead-letters\b.*--replay")
_CONFIRMED = re.compile(r"reset\b|backfill\b.*--(?:replace|close)")

# Refusals that need no remedy: what was requested is there, or is not there to be done.
WAITS = re.compile(r"^.*newer records wait after it.*$", re.MULTILINE)
"""In the log of a run that ends well: a table waits for a decision, as the source has removed what it lacks."""
SELF_EVIDENT = re.compile(
    r"LC7222|there is nothing to replace|nothing is blocked|"
    r"LC7223|: nothing is left|no such partition|name offsets that can be read|no plan has made it|"
    r"or land into a new table"
)


class CampaignError(AssertionError):
    """A sequence after which something is wrong."""


@dataclass(slots=True)
class Player:
    """Plays steps on one landing. ``story`` is what happened, for people."""

    landing: CampaignLanding
    reader: TableReader
    shape: str = "plain"
    executed: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def begin(self, chance: Random, *, sink: bool) -> None:
        """Land a first window; half of the landings begin behind some records, which are a backfill's. Others go on in
        the table of a sink.
        """
        self.landing.options["start"] = chance.choice(self.landing.starts)
        for _ in range(4):
            self.landing.choose(chance)
            self.landing.produce(chance)
        if sink:
            self._begin_with_sink()
        self._land()
        for _ in range(4):
            self.landing.produce(chance)
        self._land()

    def _begin_with_sink(self) -> None:
        landing = self.landing
        with landing.another_engine() as catalog:
            make_table(catalog)
            land_by_sink(catalog, landing.logs, landing.topic)
        landing.adopted = True
        landing.model.evaluate(Nature.LANDS, self.reader.read())
        # The dead-letter table is made by the first window; before that `verify` misses it.
        adopted = landing.run(*ADOPT)
        self._fail_if([] if adopted.done else [f"the table is not adopted: {adopted.error or adopted.log}"])
        landing.model.evaluate(Nature.LANDS, self.reader.read(), adopted)

    def step(self, step: Step) -> None:
        """Do one step after some records have come, and what its refusal tells to do."""
        chance, operation = Random(step.seed), OPERATIONS[step.kind]
        self.landing.choose(chance)
        while chance.random() < 0.6:
            self.landing.produce(chance)
        answer = operation.act(self.landing, chance)
        if answer is NOTHING:
            self.story.append(f"{step.kind}:{step.seed}: nothing to do")
            return
        nature = operation.nature if answer is None else nature_of(answer.arguments, operation.nature)
        self._evaluate(step.kind, nature, answer, revives=operation.revives)
        if answer is None or answer.done or answer.killed:
            self.executed.append(step.kind)
        elif chance.random() < 0.7:
            self.follow_remedy(answer)

    def follow_remedy(self, answer: Answer, text: str = "", *, again: bool = True) -> bool:
        """Run the first command that a refusal names, or a text, and if that is refused, once what its refusal names;
        return False if it names none that can be run.
        """
        words = next(iter(remedies(text or answer.error or answer.log)), None)
        if words is None:
            return self._put_back(answer)
        topic = self.landing.topic
        self.landing.choose_of(answer)
        done = self.landing.run(*words)
        self._evaluate("  remedy", nature_of(words, Nature.DECIDES), done)
        if "--by offsets" in done.error and self.landing.sinks_turn:
            adopted = self.landing.run(*ADOPT, "--by", "offsets")
            self._evaluate("  remedy", Nature.DECIDES, adopted)
            self.landing.sinks_turn = not adopted.done
        elif "`earliest`" in done.error:
            earliest = self.landing.run("reset", "offsets", "SPEC", "--from", "earliest", "--yes")
            self._evaluate("  remedy", Nature.DECIDES, earliest)
        elif again and done.error and not SELF_EVIDENT.search(done.error):
            self.follow_remedy(done, again=False)
        self.landing.topic = topic
        return True

    def _put_back(self, answer: Answer) -> bool:
        """Roll a branch to where a refusal says that it should be; return False if it does not, or that is missing."""
        if (found := ROLL.search(answer.error or answer.log)) is None:
            return False
        with self.landing.another_engine() as catalog:
            table = catalog.load_table(found[1] or ROWS)
            if table.snapshot_by_id(int(found[2])) is None:
                return False
            table.manage_snapshots().set_current_snapshot(int(found[2])).commit()
            if self.landing.adopted and table.name()[-1] == ROWS.rpartition(".")[2]:
                self.landing.sinks_turn = is_sinks(catalog.load_table(ROWS))
        self._evaluate(f"  rolled to {found[2]}", Nature.FOREIGN, None)
        return True

    def _evaluate(self, name: str, nature: Nature, answer: Answer | None, *, revives: bool = False) -> None:
        model, before = self.landing.model, self.landing.model.now
        if answer is not None and is_plain_backfill(answer.arguments):
            # Also that of an open stream: it takes nothing out, and lands some partitions where it is refused others.
            nature = Nature.LANDS
        text = "" if answer is None else f": {answer.code} {shlex.join(answer.arguments)} {answer.error}"
        self.story.append(f"{name}{text}")
        problems = model.evaluate(nature, self.reader.read(), answer, revives=revives)
        if answer is not None and answer.error and not _helps(answer.error):
            problems.append(f"the refusal names no remedy: {answer.error}")
        # A row per key is compared by itself, so that its history is verified less often.
        due = not self.landing.upserts or len(self.story) % 4 == 0
        problems += self._verified() if due and model.now.heads != before.heads else ()
        self._fail_if(problems)

    def _verified(self, *how: str) -> list[str]:
        answer, model = self.landing.run("verify", "SPEC", *how), self.landing.model
        if answer.code == 0 and model.wrong:
            return ["verify finds nothing wrong"]
        if answer.code != 0 and not model.wrong and not model.touched:
            found = [f["text"] for r in answer.results for f in r.get("findings", ()) if f["level"] == "wrong"]
            return [f"verify says that something is wrong: {found or answer.error}"]
        return []

    def _fail_if(self, problems: Sequence[str]) -> None:
        if problems:
            raise CampaignError("\n".join([*problems, "", *self.story]))

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Land all that can be landed, finish what is open, and compare the tables with the model."""
        landing = self.landing
        landing.options.update(unknown_fields="ignore", dead_letter_max_records=100_000)
        if landing.is_set:
            landing.spec["topics"] = [t for t in TOPICS if t in landing.logs.topics]
        for topic in landing.spec["topics"] if landing.is_set else (landing.topic,):
            landing.topic = topic
            self._finish_one()
        how = ("--rows", "--keys") if landing.upserts else ("--rows",)
        self._fail_if([*landing.model.lost(), *self._verified(*how)])

    def _finish_one(self) -> None:
        # What an upserting landing begins behind may be refused, and its dead letters always are.
        past = () if self.landing.upserts and "latest" not in self.landing.starts else (self._backfill,)
        letters = () if self.landing.upserts else (self._letters,)
        for act in (self._adopt, self._land, self._finish_lanes, self._land, *past, *letters, self._land):
            self._until_done(act)

    def _until_done(self, act: Callable[[], Answer | None]) -> None:
        for _ in range(ROUNDS):
            answer = act()
            if answer is None or SELF_EVIDENT.search(answer.error):
                return
            behind = WAITS.search(answer.log) if answer.done else None
            if answer.done and behind is None:
                return
            if not self.follow_remedy(answer, behind[0] if behind else ""):
                self._fail_if([f"a dead end: nothing to be run is named by {answer.error or answer.log[-800:]}"])
        self._fail_if([f"no end after {ROUNDS} remedies"])

    def _do(self, nature: Nature, *words: str, revives: bool = False) -> Answer:
        answer = self.landing.run(*words)
        self._evaluate("  end", nature, answer, revives=revives)
        return answer

    def _adopt(self) -> Answer | None:
        return self._do(Nature.LANDS, *ADOPT) if self.landing.sinks_turn else None

    def _land(self) -> Answer:
        return self._do(Nature.LANDS, "land", "SPEC")

    def _backfill(self) -> Answer:
        return self._do(Nature.LANDS, "backfill", "SPEC", "--since", "2020-01-01")

    def _letters(self) -> Answer:
        return self._do(Nature.LANDS, "dead-letters", "SPEC", "--replay", revives=True)

    def _finish_lanes(self) -> Answer | None:
        for lane in self.landing.lanes():
            answer = self.landing.finish_lane(lane)
            self._evaluate("  end", nature_of(answer.arguments, Nature.DECIDES), answer)
            if not answer.done:
                answer = self.landing.run("backfill", "SPEC", "--close", lane["lane"], "--yes")
                self._evaluate("  end", Nature.LANDS, answer)
                return answer
        return None


def nature_of(words: Sequence[str], nature: Nature) -> Nature:
    """What a command may do to rows: a run takes none out, and what it landed stays where it failed."""
    return Nature.LANDS if tuple(words[:1]) == ("land",) or is_plain_backfill(words) else nature


def is_plain_backfill(words: Sequence[str]) -> bool:
    """Return True for a backfill that lands, and neither replaces nor closes."""
    return tuple(words[:1]) == ("backfill",) and not {"--replace", "--close"} & {*words}


def _helps(error: str) -> bool:
    """Return True if a refusal names something to do, or needs not to."""
    return bool("`" in error or SELF_EVIDENT.search(error) or re.search(r"--\w+|choose another name|correct `", error))


def remedies(text: str) -> Iterator[tuple[str, ...]]:
    """The commands of a text that can be run as they are."""
    for command in REMEDY.findall(text):
        if _PLACEHOLDERS.search(command) or _DOES.match(command) is None:
            continue
        words = shlex.split(command)
        words += [] if "SPEC" in words else ["SPEC"]
        words += ["--yes"] if _CONFIRMED.match(command) and "--yes" not in words else []
        yield tuple(words)


@contextmanager
def memory_player(folder: Path, shape: str = "plain", **options: Any) -> Iterator[Player]:
    """A landing, or a set of them, of a cluster in memory into a catalog in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = MemoryBroker()
    for topic in TOPICS[:2]:
        broker.create(topic, PARTITIONS)
    broker.create(CONTROL, 1)
    spec = {**spec_of(folder, "127.0.0.1:1", TOPICS[0], "control"), **options}
    way = WAYS.get(shape)
    spec = {"set": set_of, "several": several_of}.get(shape, dict)(spec) if way is None else upserting(spec, way)
    with plugged_in(broker), fast_manifests(), console(folder / "spec.json", spec) as commands:
        parts = broker, broker, commands
        if way is None:
            reader = SeveralReader if shape == "several" else TableReader
            yield Player(CampaignLanding(*parts, Model(broker), TOPICS[0]), reader(folder / "c.db"), shape)
        else:
            landing = UpsertLanding(*parts, UpsertModel(broker, way=way), TOPICS[0], way=way)
            yield Player(landing, UpsertReader(folder / "c.db", broker.control("control")), shape)


def play(player: Player, steps: Sequence[Step]) -> list[str]:
    """Play the steps and finish; returns the executed kinds in their order.

    :raises CampaignError: something is wrong
    """
    seed = steps[0].seed if steps else 0
    try:
        player.begin(Random(seed), sink=player.shape == "sink")
        for step in steps:
            player.step(step)
        player.finish()
    except CampaignError as e:
        again = f"python -m tests.support.campaign --shape {player.shape} {shlex.quote(written(steps))}"
        raise CampaignError(f"{e}\n\nagain: {again}") from None
    return player.executed
