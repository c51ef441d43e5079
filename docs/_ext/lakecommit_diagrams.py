# SPDX-License-Identifier: Apache-2.0
"""Diagrams made from the code: the rooms by their imports, the messages of a cycle, what can become of a slice."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from docutils import nodes
from lakecommit_source import Imports, MissingError, answers, imports_of, load, messages, rooms, summary, tree_of
from lakecommit_svg import columns, layers, sequence
from lakecommit_tables import TableDirective, code, table
from sphinx.util.docutils import SphinxDirective

LANES = {
    "cycle.plan.start": "plan",
    "spark.report": "Spark tasks",
    "cycle.commit.close": "commit",
    "cycle.commit.publish": "commit",
    "cycle.commit.refusals": "commit",
}
LOG, TABLE = "control topic", "table"
FAILED = "failed"
RARE = {FAILED, "end", "void"}
"""Messages that a cycle as it should be does without."""
FORMATS = {"sqlalchemy", "yaml", "numpy"}
"""Libraries that say nothing of a room's place."""


class DiagramDirective(SphinxDirective):
    """Base: a directive that is replaced by one SVG."""

    def svg(self) -> str:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", self.svg(), format="html")]


class RoomsDiagram(DiagramDirective):
    """Which room needs which."""

    def svg(self) -> str:
        found = {room: imports_of(room) for room in rooms()}
        return layers("Rooms and their imports", {room: i.ours | i.ours_lazily for room, i in found.items()})


class RoomsTable(TableDirective):
    """Each room: its idea, what it imports of ours and of others."""

    def rst(self) -> Iterable[str]:
        rows = []
        for room in rooms():
            idea = summary(ast.get_docstring(tree_of(room)))
            if not idea:
                raise MissingError(f"the room {room} has no docstring")
            found = imports_of(room)
            rows.append((code(room), idea.rstrip("."), _ours(found), _theirs(found)))
        return table(("room", "idea", "rooms that it imports", "libraries"), rows, "10 38 22 30")


def _ours(found: Imports) -> str:
    known = set(rooms())
    return ", ".join(code(n) for n in sorted((found.ours | found.ours_lazily) & known)) or "none"


def _theirs(found: Imports) -> str:
    said = [code(n) for n in sorted(found.theirs - FORMATS)]
    said += [f"{code(n)} (only inside functions)" for n in sorted(found.theirs_lazily - FORMATS)]
    return ", ".join(said) or "the standard library"


class CycleDiagram(DiagramDirective):
    """The messages of one cycle in their order."""

    def svg(self) -> str:
        usual = [m for m in messages() if m.kind not in RARE]
        steps: list[tuple[str, str, str, bool]] = []
        for m in usual:
            lanes = [LANES[s] for s in m.senders if s in LANES]
            if not lanes:
                raise MissingError(f"{m.kind} is sent by {m.senders}, which are in no lane of the diagram")
            if m.event == "COMMIT_TO_TABLE":
                steps.append((lanes[0], TABLE, "compare-and-swap", False))
            steps.append((lanes[0], LOG, m.event, False))
        evidence = next(m for m in messages() if m.kind == FAILED)
        steps.append(("commit", LOG, f"{evidence.event} ({FAILED})", True))
        return sequence("The messages of a cycle", ["plan", "Spark tasks", LOG, "commit", TABLE], steps)


class SliceDiagram(DiagramDirective):
    """What can become of a slice: in its task, in the fold, at the append."""

    def svg(self) -> str:
        statuses = load("spark.job:SliceStatus")
        ends = [str(status) for status in statuses if status is not statuses.REPORTED]
        void = load("iceberg.ledger.slice_checks:Grounds")
        objections = answers("core.acceptance", "Acceptance", "objection")
        return columns(
            "What can become of a slice",
            [
                ("its task ends", ends[:1], ends[1:]),
                ("the fold", ["accepted"], ["redundant:", *(f"· {text}" for text in objections)]),
                ("the append", ["in the table"], ["refused:", *(f"· {ground}" for ground in void)]),
            ],
        )


DIRECTIVES = {
    "lakecommit-rooms-diagram": RoomsDiagram,
    "lakecommit-rooms": RoomsTable,
    "lakecommit-cycle-diagram": CycleDiagram,
    "lakecommit-slice-diagram": SliceDiagram,
}
