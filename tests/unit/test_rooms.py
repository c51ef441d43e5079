# SPDX-License-Identifier: Apache-2.0
"""Dependencies point inward: which room of the package may import what, read from the source, lazy imports included.

A rule names what a room may *never* import (`nowhere`), what it may import only inside a function (`lazily`), or the
only things it may import at all (`only`). The code that is imported by every Airflow process is held to what it loads.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "airflow_provider_lakecommit"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE

AIRFLOW = frozenset({"airflow"})
SPARK = frozenset({"pyspark", "py4j"})
HEAVY = frozenset({"confluent_kafka", "pyarrow", "pyiceberg"})
LAKE = frozenset({"pyarrow", "pyiceberg", "pandas"})
KAFKA = frozenset({"confluent_kafka"})
OPENLINEAGE = frozenset({"openlineage"})
STDLIB = frozenset(sys.stdlib_module_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement of a module: what it names and whether it runs when the module is loaded."""

    name: str
    line: int
    at_load: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        """First part below the package, for imports of our own."""
        return self.name.removeprefix(f"{PACKAGE}.").partition(".")[0] if self.top == PACKAGE else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the modules of one room may import."""

    room: str
    nowhere: frozenset[str] = frozenset()
    lazily: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    rooms: frozenset[str] | None = None

    def broken_by(self, found: Import) -> str | None:
        if found.top in self.nowhere:
            return "never"
        if found.at_load and found.top in self.lazily:
            return "only inside a function"
        if self.only is not None and found.top not in self.only | STDLIB | {PACKAGE}:
            return f"only the standard library and {sorted(self.only) or 'nothing else'}"
        if self.rooms is not None and found.room and found.room not in self.rooms:
            return f"of our own only {sorted(self.rooms)}"
        return None


def rule(
    room: str,
    rooms: str = "",
    *,
    nowhere: frozenset[str] = frozenset(),
    lazily: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> Rule:
    """A rule; ``rooms`` are all that the room may import of ours beside itself and the errors."""
    own = room.partition("/")[0]
    return Rule(
        room=room,
        nowhere=nowhere,
        lazily=lazily,
        only=only,
        rooms=frozenset({own, "exceptions", "reset_commands", *rooms.split()}),
    )


NOTHING: frozenset[str] = frozenset()
LIBRARY = (
    "redaction signing connection_names core planning shown declared registry wire kafka iceberg parquet formats spark "
    "engines stall committer connector evolve subjects session prepare cycle landing"
)

#: From the ground up: a room imports rooms that stand above it in this table, never one below.
RULES = (
    Rule(room="exceptions", only=NOTHING, rooms=NOTHING),
    Rule(room="redaction", only=NOTHING, rooms=NOTHING),
    Rule(room="reset_commands", only=NOTHING, rooms=NOTHING),
    rule("signing", only=NOTHING),
    Rule(room="connection_names", only=NOTHING, rooms=NOTHING),
    Rule(room="get_provider_info", only=NOTHING, rooms=NOTHING),
    Rule(room="__init__", only=NOTHING, rooms=NOTHING),
    Rule(room="preload", only=NOTHING, rooms=NOTHING),
    rule("assets", nowhere=SPARK, lazily=AIRFLOW, only=AIRFLOW),
    rule("core", only=NOTHING),
    rule("planning", "core", only=NOTHING),
    Rule(room="places", only=NOTHING, rooms=NOTHING),
    rule("goals", "core planning", only=NOTHING),
    rule("shown", "core", only=NOTHING),
    rule("status_fields", "core", only=NOTHING),
    rule("declared", "redaction signing core", only=frozenset({"yaml"})),
    rule("wire", "core", only=frozenset({"fastavro"})),
    rule("registry", "redaction signing", nowhere=AIRFLOW | SPARK | LAKE, lazily=KAFKA),
    *(rule(f"registry/{module}", "signing", only=NOTHING) for module in ("framing", "schemas", "settings")),
    rule("landing", "redaction signing core declared registry assets", only=frozenset({"yaml"})),
    rule("landing_set", "declared landing", only=NOTHING),
    rule("kafka", "redaction signing connection_names core planning declared wire", nowhere=AIRFLOW | SPARK | LAKE),
    rule("iceberg", "redaction connection_names core declared wire", nowhere=AIRFLOW | SPARK),
    rule("parquet", "redaction core places", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats", "core declared registry iceberg parquet", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats/sampled", only=NOTHING),
    rule("protobuf", "core declared registry parquet formats", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("avro", "core registry parquet formats", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("records", "core declared parquet formats", nowhere=AIRFLOW | SPARK | KAFKA),
    rule(
        "spark",
        "redaction signing core declared wire landing registry kafka iceberg parquet formats records",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule("engines", "redaction declared spark", nowhere=AIRFLOW, lazily=SPARK),
    rule("stall", "core declared wire kafka", nowhere=AIRFLOW | SPARK | LAKE),
    *(rule(f"stall/{module}", "core", only=NOTHING) for module in ("verdict", "state", "observe", "guard")),
    rule("committer", "core planning places wire iceberg", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("connector", "core places redaction wire kafka iceberg committer", nowhere=AIRFLOW | SPARK),
    rule("connector/group_log", only=NOTHING),
    rule("connector/judge", "core places", only=NOTHING),
    rule(
        "evolve",
        "core declared landing registry kafka iceberg formats avro protobuf committer",
        nowhere=AIRFLOW | SPARK,
    ),
    *(
        rule(f"evolve/{module}", "declared", nowhere=KAFKA | frozenset({"pyarrow"}))
        for module in ("changes", "misfits", "names", "paths", "schema")
    ),
    rule("subjects", "core registry iceberg formats evolve landing", nowhere=AIRFLOW | SPARK | KAFKA),
    rule(
        "session",
        "redaction signing core planning places shown wire landing kafka iceberg parquet spark committer evolve "
        "subjects",
        nowhere=AIRFLOW | SPARK,
    ),
    rule(
        "prepare",
        "signing core planning goals wire landing kafka spark committer evolve session",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "cycle",
        "core planning goals places shown wire landing kafka iceberg spark engines committer subjects session prepare",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "follow",
        "core planning wire landing iceberg engines committer session prepare cycle",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule("replace", "core places iceberg parquet committer session landing", nowhere=AIRFLOW | SPARK | KAFKA),
    rule(
        "lanes",
        "core planning wire landing kafka iceberg committer session prepare cycle replace",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("lanes/asked", "core", only=NOTHING),
    rule(
        "inspect",
        "core planning places status_fields goals landing iceberg committer session prepare cycle replace lanes",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    *(rule(f"inspect/{module}", "core landing committer", only=NOTHING) for module in ("accounts", "lanes", "verify")),
    rule(
        "repair",
        "core planning wire kafka committer session prepare cycle replace",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "adopt",
        "core planning landing wire kafka iceberg committer connector session prepare cycle inspect",
        nowhere=AIRFLOW | SPARK,
    ),
    *(
        rule(f"adopt/{module}", "core planning landing connector", only=NOTHING)
        for module in ("scope", "section", "sink_offsets")
    ),
    rule(
        "maintenance",
        "core places wire landing iceberg committer session prepare cycle lanes",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule("maintenance/garbage", "core", only=NOTHING),
    rule(
        "dead_letters",
        "core places wire landing iceberg parquet spark committer session prepare cycle",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule("many", f"{LIBRARY} landing_set", nowhere=AIRFLOW | SPARK),
    rule("many/expansion", "core declared landing landing_set", only=NOTHING),
    rule("doctor", f"{LIBRARY} inspect", nowhere=AIRFLOW, lazily=SPARK),
    rule("settings", "landing", only=AIRFLOW, lazily=AIRFLOW),
    rule("table_looks", "core iceberg inspect", nowhere=AIRFLOW | SPARK | KAFKA),
    *(rule(f"table_looks/{module}", only=NOTHING) for module in ("process", "question")),
    rule("page", "core status_fields landing wire kafka stall table_looks", nowhere=SPARK | LAKE),
    *(
        rule(f"page/{module}", "core stall", only=NOTHING)
        for module in (
            "connector_tasks",
            "cycles",
            "files",
            "lag_clock",
            "landings",
            "partitions",
            "remedies",
            "seen_cycle",
            "trend",
            "watched",
        )
    ),
    rule("notifications", only=AIRFLOW),
    rule(
        "hooks",
        "redaction signing connection_names landing registry iceberg engines connector",
        nowhere=HEAVY,
        lazily=SPARK,
    ),
    rule("plugins", "preload page settings hooks", only=AIRFLOW),
    rule("telemetry", "core landing cycle", nowhere=HEAVY | SPARK, lazily=AIRFLOW | OPENLINEAGE),
    rule("triggers", "core planning declared landing stall settings kafka hooks", nowhere=SPARK | LAKE, lazily=HEAVY),
    rule("tasks", f"{LIBRARY} follow assets settings hooks telemetry", nowhere=HEAVY, lazily=SPARK),
    rule(
        "operators",
        f"{LIBRARY} landing_set many replace lanes follow inspect repair adopt maintenance dead_letters assets "
        "settings hooks telemetry tasks",
        nowhere=HEAVY,
        lazily=SPARK,
    ),
    rule(
        "sensors",
        "core declared landing stall connector settings hooks telemetry tasks operators triggers",
        nowhere=SPARK | LAKE,
        lazily=HEAVY,
    ),
    rule("task_groups", "landing landing_set tasks operators", nowhere=SPARK, lazily=HEAVY),
    rule("deployment", "landing landing_set settings hooks operators", nowhere=HEAVY | SPARK, lazily=AIRFLOW),
    rule("terminal", "core redaction shown session", nowhere=AIRFLOW | SPARK | LAKE | KAFKA),
    rule("terminal/output", "redaction", only=NOTHING),
    rule("terminal/stop", only=NOTHING),
    rule(
        "runs",
        f"{LIBRARY} follow telemetry terminal landing_set many",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule(
        "cli",
        f"{LIBRARY} landing_set many runs lanes replace follow inspect repair adopt maintenance dead_letters doctor "
        "records telemetry deployment terminal __version__",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule(
        "example_dags", "landing landing_set task_groups operators sensors triggers notifications assets", only=AIRFLOW
    ),
)


def modules(room: str) -> list[Path]:
    """The modules of a room, be it a folder or one module; none while nobody has built it."""
    return [path for path in (ROOT / f"{room}.py", *sorted((ROOT / room).rglob("*.py"))) if path.is_file()]


def imports_of(path: Path) -> list[Import]:
    """Every import of a module, with relative ones made absolute and those for type checkers alone left out."""
    package = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts[:-1])
    return list(_imports(ast.parse(path.read_text(encoding="utf-8")), package, at_load=True))


def _imports(node: ast.AST, package: tuple[str, ...], *, at_load: bool) -> Iterator[Import]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.orelse:
            yield from _imports(child, package, at_load=at_load)
        return
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(name=alias.name, line=node.lineno, at_load=at_load)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        stem = ".".join(part for part in (base, node.module or "") if part)
        # `from package import room` names the room only in its alias.
        names = [f"{stem}.{alias.name}" for alias in node.names] if stem == PACKAGE else [stem]
        for name in names:
            yield Import(name=name, line=node.lineno, at_load=at_load)
    inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, at_load=inside)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.room)
def test_a_room_imports_only_what_it_may(rule: Rule) -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{found.line} imports {found.name}: allowed {reason}"
        for path in modules(rule.room)
        for found in imports_of(path)
        if (reason := rule.broken_by(found))
    ]
    assert broken == []


def test_every_room_has_a_rule() -> None:
    rooms = {place.stem for place in ROOT.iterdir() if place.suffix == ".py" or any(place.glob("*.py"))}
    assert rooms - {rule.room for rule in RULES} == set()


def test_a_room_imports_only_rooms_above_it_in_the_table() -> None:
    places = {rule.room: place for place, rule in enumerate(RULES)}
    climbing = [
        f"{rule.room} may import {room}, which stands below it"
        for rule in RULES
        for room in rule.rooms or ()
        if room in places and places[room] > places[rule.room]
    ]
    assert climbing == []


@pytest.mark.parametrize(
    ("room", "source", "reason"),
    [
        ("core", "import fastavro", "only the standard library and nothing else"),
        ("core", "def f():\n    from airflow_provider_lakecommit.wire import plan", "of our own only"),
        ("core", "from airflow_provider_lakecommit import hooks", "of our own only"),
        ("core", "from ..wire import plan", "of our own only"),
        ("wire", "import pyarrow as pa", "only the standard library and"),
        ("spark", "def f():\n    import airflow.sdk", "never"),
        ("cycle", "import pyspark.sql", "never"),
        ("hooks", "class A:\n    from pyspark import sql", "only inside a function"),
        ("kafka", "import airflow.sdk", "never"),
        ("stall/verdict", "from airflow_provider_lakecommit.kafka import config", "of our own only"),
    ],
)
def test_the_rules_notice(room: str, source: str, reason: str) -> None:
    rule = next(rule for rule in RULES if rule.room == room)
    found = list(_imports(ast.parse(source), (PACKAGE, room), at_load=True))
    assert [answer for answer in map(rule.broken_by, found) if answer and answer.startswith(reason)]


@pytest.mark.parametrize("source", ["def f():\n    import pyspark", "if TYPE_CHECKING:\n    import pyspark"])
def test_a_lazy_import_and_one_for_types_are_no_import_at_load(source: str) -> None:
    found = list(_imports(ast.parse(source), (PACKAGE, "cycle"), at_load=True))
    assert not any(one.at_load for one in found)


LIGHT = (
    "landing,core,planning,goals,declared,wire,kafka,iceberg,stall,engines,committer,connector,session,prepare,cycle,"
    "inspect,repair,replace,maintenance,dead_letters,doctor,cli,telemetry,landing_set,many,runs,evolve"
)
WITHOUT = """
import importlib, pkgutil, sys
package, blocked, rooms = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked by the test)", name=name)

sys.meta_path.insert(0, Blocker())
for room in rooms:
    module = importlib.import_module(f"{package}.{room}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print("loaded", len([name for name in sys.modules if name.startswith(package)]))
"""


def load_without(blocked: str, rooms: str) -> str:
    """Import every module of *rooms*, those that are there, in a Python in which *blocked* cannot be imported."""
    command = [sys.executable, "-c", WITHOUT, PACKAGE, blocked, rooms]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    # Airflow may log to standard output before
    return done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr


@pytest.mark.parametrize(
    ("blocked", "rooms"),
    [
        ("pyspark,py4j", f"{LIGHT},hooks,operators,task_groups"),
        ("pyspark,py4j,pyarrow,pyiceberg,pandas", "sensors,triggers,notifications"),
        ("pyspark,py4j,airflow", LIGHT),
        ("pyspark,py4j,airflow,pyiceberg,confluent_kafka,pyarrow", "landing,core,wire,get_provider_info"),
        ("pyspark,py4j,airflow,pyiceberg,pyarrow", "kafka,stall"),
        ("airflow", "spark,formats,parquet,engines"),
    ],
)
def test_what_needs_no_spark_or_airflow_runs_without(blocked: str, rooms: str) -> None:
    answer = load_without(blocked, rooms)
    assert answer.startswith("loaded"), answer


def test_the_block_is_a_block() -> None:
    assert "blocked by the test" in load_without("json", "landing")
