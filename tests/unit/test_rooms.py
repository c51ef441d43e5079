# SPDX-License-Identifier: Apache-2.0
"""Dependencies point inward: which room of the package may import what, read from the source, lazy imports included.

A room is a folder of the package, or a folder in one. A rule names what a room may *never* import (`nowhere`), what it
may import only inside a function (`lazily`), or the only things it may import at all (`only`). The code that is
imported by every Airflow process is held to what it loads.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.sources import PACKAGE, ROOT, imported, module_of, public_names, sources

AIRFLOW = frozenset({"airflow"})
SPARK = frozenset({"pyspark", "py4j"})
HEAVY = frozenset({"confluent_kafka", "pyarrow", "pyiceberg"})
LAKE = frozenset({"pyarrow", "pyiceberg", "pandas"})
KAFKA = frozenset({"confluent_kafka"})
OPENLINEAGE = frozenset({"openlineage"})
STDLIB = frozenset(sys.stdlib_module_names)
ROOMS = frozenset(place.parent.relative_to(ROOT).as_posix() for place in ROOT.rglob("__init__.py")) - {"."}
"""Folders of the package, and folders in them."""
WITH_NAMES = sorted(room for room in ROOMS if "/" not in room and public_names(room))
"""Rooms that other rooms import names of."""
AMBIGUOUS = {
    "core": {"duration_text", "fold", "lazy_names", "outdated", "settle", "without"},
    "formats": {"evolution", "infer"},
    "iceberg": {"file_io", "merge_section", "stage"},
    "kafka": {"sample"},
    "spark": {"key_columns"},
    "stall": {"observe"},
    "status": {"table_history"},
    "telemetry": {"send"},
}
"""Names that a room cannot give: a module of it has the name too, or two modules have such a function."""
TOP_FOLDERS = 22
LOOSE_FILES = 8


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
        """The folder below the package, for imports of our own."""
        return room_of(self.name.split(".")[1:]) if self.top == PACKAGE else ""


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


def room_of(parts: Sequence[str]) -> str:
    """The innermost room of a module, whose place below the package *parts* name; a loose module is its own."""
    inner = ("/".join(parts[:depth]) for depth in (2, 1))
    return next((room for room in inner if room in ROOMS), parts[0] if parts else "__init__")


def rule(
    room: str,
    rooms: str = "",
    *,
    nowhere: frozenset[str] = frozenset(),
    lazily: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> Rule:
    """A rule; ``rooms`` are all that the room may import of ours next to itself and the errors."""
    own = room_of(room.split("/"))
    return Rule(
        room=room, nowhere=nowhere, lazily=lazily, only=only, rooms=frozenset({own, "exceptions", *rooms.split()})
    )


NOTHING: frozenset[str] = frozenset()
AVRO = frozenset({"fastavro"})

#: From the ground up: a room imports rooms that stand above it in this table, never one below.
RULES = (
    Rule(room="exceptions", only=NOTHING, rooms=NOTHING),
    Rule(room="redaction", only=NOTHING, rooms=NOTHING),
    rule("signing", only=NOTHING),
    Rule(room="get_provider_info", only=NOTHING, rooms=NOTHING),
    Rule(room="__init__", only=NOTHING, rooms=NOTHING),
    Rule(room="preload", only=NOTHING, rooms=NOTHING),
    rule("assets", nowhere=SPARK, lazily=AIRFLOW, only=AIRFLOW),
    rule("core", only=NOTHING),
    rule("core/planning", "core", only=NOTHING),
    rule("landing", "assets core redaction signing", only=frozenset({"yaml"})),
    rule("landing/registry", "signing", only=NOTHING),
    rule("kafka", "core core/planning landing redaction signing", nowhere=AIRFLOW | SPARK | LAKE),
    rule("control", "core core/planning kafka redaction signing", nowhere=AIRFLOW | SPARK | LAKE),
    *(
        rule(f"control/{module}", "core", only=AVRO)
        for module in (
            "avro_bounds",
            "avro_schemas",
            "avro_shapes",
            "coverage",
            "data_file",
            "errors",
            "events",
            "headers",
            "ledger_text",
            "payloads",
            "plan_json",
            "records",
        )
    ),
    rule("formats/registry", "landing redaction", nowhere=AIRFLOW | SPARK | LAKE, lazily=KAFKA),
    rule("formats/registry/framing", only=NOTHING),
    rule("formats/registry/schema_source", only=NOTHING),
    rule("iceberg", "control core landing redaction", nowhere=AIRFLOW | SPARK),
    rule("iceberg/parquet", "core iceberg redaction", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats", "core formats/registry iceberg iceberg/parquet landing", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats/sampled", only=NOTHING),
    rule("formats/protobuf", "core formats formats/registry iceberg/parquet", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats/avro", "core formats formats/registry iceberg/parquet", nowhere=AIRFLOW | SPARK | KAFKA),
    rule("formats/transforms", "core formats iceberg/parquet landing", nowhere=AIRFLOW | SPARK | KAFKA),
    rule(
        "spark",
        "control core formats formats/registry formats/transforms iceberg iceberg/parquet kafka "
        "landing redaction signing",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule("spark/launch", "landing redaction spark", nowhere=AIRFLOW, lazily=SPARK),
    rule("stall", "control core landing", nowhere=AIRFLOW | SPARK | LAKE),
    *(rule(f"stall/{module}", "core", only=NOTHING) for module in ("verdict", "group_state", "observe", "guard")),
    rule("iceberg/ledger", "control core core/planning iceberg iceberg/parquet", nowhere=AIRFLOW | SPARK | KAFKA),
    rule(
        "formats/evolution",
        "iceberg/ledger core formats formats/avro formats/protobuf formats/registry iceberg kafka landing",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("formats/evolution/changes", "formats", nowhere=KAFKA | frozenset({"pyarrow"})),
    rule("formats/column_names", "landing", nowhere=KAFKA | frozenset({"pyarrow"})),
    rule("formats/evolution/paths", nowhere=KAFKA | frozenset({"pyarrow"})),
    rule("formats/evolution/schema", nowhere=KAFKA | frozenset({"pyarrow"})),
    rule(
        "cycle/session",
        "iceberg/ledger control core core/planning formats/evolution iceberg iceberg/parquet kafka landing "
        "redaction signing spark",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("cycle", "control core spark", nowhere=AIRFLOW | SPARK, lazily=KAFKA),
    rule(
        "cycle/plan",
        "iceberg/ledger control core core/planning cycle cycle/session formats/evolution kafka landing signing spark",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "status",
        "iceberg/ledger core core/planning cycle cycle/plan cycle/session iceberg iceberg/parquet landing",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule("status/accounts", "core", only=NOTHING),
    rule("status/lanes", "core", only=NOTHING),
    rule("status/verify", "iceberg/ledger core landing", only=NOTHING),
    rule(
        "cycle/jobs",
        "control core cycle cycle/session landing spark spark/launch",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "cycle/commit",
        "iceberg/ledger control core core/planning cycle cycle/plan cycle/session cycle/jobs iceberg "
        "iceberg/parquet kafka "
        "landing spark",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "operations/kafka_connect",
        "iceberg/ledger control core core/planning cycle/commit cycle/plan cycle/session iceberg kafka "
        "landing redaction status",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("operations/kafka_connect/disposition", "core", only=NOTHING),
    rule("operations/kafka_connect/sink", "core landing", only=NOTHING),
    rule("operations/kafka_connect/sink_offsets", "core core/planning", only=NOTHING),
    rule(
        "cycle/run",
        "iceberg/ledger core core/planning cycle cycle/commit cycle/plan cycle/session cycle/jobs iceberg spark/launch",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule(
        "operations/backfill",
        "iceberg/ledger core core/planning cycle cycle/commit cycle/plan cycle/session iceberg "
        "iceberg/parquet kafka landing",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("operations/backfill/request", "core", only=NOTHING),
    rule(
        "operations/decisions",
        "iceberg/ledger control core core/planning cycle cycle/commit cycle/plan cycle/session kafka "
        "operations/backfill",
        nowhere=AIRFLOW | SPARK,
        lazily=KAFKA,
    ),
    rule(
        "operations/maintenance",
        "iceberg/ledger core cycle/plan cycle/session iceberg iceberg/parquet landing operations/backfill redaction",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule(
        "operations/proof",
        "iceberg/ledger core core/planning cycle/plan cycle/session iceberg iceberg/parquet operations/backfill "
        "spark status",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule("operations/proof/chosen", "core core/planning", only=NOTHING),
    rule("operations/proof/compare", only=frozenset({"numpy", "pyarrow"})),
    rule("operations/maintenance/garbage", "core", only=NOTHING),
    rule(
        "operations/dead_letters",
        "iceberg/ledger control core cycle/commit cycle/plan cycle/session iceberg iceberg/parquet landing "
        "operations/decisions spark",
        nowhere=AIRFLOW | SPARK | KAFKA,
    ),
    rule(
        "cycle/sets",
        "control core core/planning cycle cycle/plan cycle/session formats iceberg kafka landing spark spark/launch",
        nowhere=AIRFLOW | SPARK,
    ),
    rule("cycle/sets/expansion", "landing", only=NOTHING),
    rule(
        "status/doctor",
        "iceberg/ledger control core core/planning cycle/commit cycle/plan cycle/session formats/evolution "
        "formats/registry iceberg kafka landing redaction signing spark spark/launch status",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule("page", "control core kafka landing stall", nowhere=SPARK | LAKE),
    rule("page/connector_tasks", "stall", only=NOTHING),
    rule("page/cycles", "core stall", only=NOTHING),
    rule("page/lag_clock", only=NOTHING),
    rule("page/landings", "core stall", only=NOTHING),
    rule("page/partitions", only=NOTHING),
    rule("page/remedies", "core stall", only=NOTHING),
    rule("page/observed_cycle", "core", only=NOTHING),
    rule("page/trend", only=NOTHING),
    rule("notifications", only=AIRFLOW),
    rule(
        "hooks",
        "core iceberg landing operations/kafka_connect redaction signing spark spark/launch",
        nowhere=HEAVY,
        lazily=SPARK,
    ),
    rule("plugins", "hooks page preload", only=AIRFLOW),
    rule("telemetry", "core", nowhere=HEAVY | SPARK, lazily=AIRFLOW | OPENLINEAGE),
    rule("triggers", "control core core/planning hooks landing stall", nowhere=SPARK | LAKE, lazily=HEAVY),
    rule(
        "operators/tasks",
        "assets core cycle cycle/run cycle/session hooks landing operations/decisions operations/kafka_connect "
        "telemetry",
        nowhere=HEAVY,
        lazily=SPARK,
    ),
    rule(
        "operators",
        "assets iceberg/ledger control core cycle cycle/commit cycle/plan cycle/run cycle/session "
        "cycle/sets cycle/jobs hooks iceberg landing operations/backfill operations/dead_letters "
        "operations/kafka_connect operations/maintenance operations/proof operations/decisions "
        "operators/tasks spark spark/launch status telemetry",
        nowhere=HEAVY,
        lazily=SPARK,
    ),
    rule(
        "sensors",
        "core hooks landing operations/kafka_connect operators operators/tasks stall telemetry triggers",
        nowhere=SPARK | LAKE,
        lazily=HEAVY,
    ),
    rule("task_groups", "landing operators operators/tasks", nowhere=SPARK, lazily=HEAVY),
    rule("cli/terminal", "core cycle/session redaction", nowhere=AIRFLOW | SPARK | LAKE | KAFKA),
    rule("cli/terminal/output", "core redaction", only=NOTHING),
    rule("cli/terminal/stop", only=NOTHING),
    rule(
        "cli/runs",
        "cli/terminal core cycle cycle/commit cycle/plan cycle/run cycle/session cycle/sets "
        "formats/evolution iceberg landing operations/maintenance spark spark/launch telemetry",
        nowhere=AIRFLOW,
        lazily=SPARK,
    ),
    rule(
        "cli",
        "__init__ cli/runs cli/terminal iceberg/ledger control core core/planning cycle/plan cycle/run "
        "cycle/session cycle/sets formats formats/evolution formats/registry formats/transforms hooks "
        "iceberg kafka landing operations/backfill operations/dead_letters operations/kafka_connect "
        "operations/maintenance operations/proof operations/decisions operators redaction spark "
        "spark/launch stall status status/doctor",
        lazily=AIRFLOW | SPARK,
    ),
    rule("example_dags", "assets landing notifications operators sensors stall task_groups triggers", only=AIRFLOW),
    rule("operations", "core"),
)


def modules(room: str) -> list[Path]:
    """The modules of a room, be it a folder without those in it or one module."""
    return [
        path
        for path in (ROOT / f"{room}.py", *sorted((ROOT / room).rglob("*.py")))
        if path.is_file() and owned(path, room)
    ]


def owned(path: Path, room: str) -> bool:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return room_of(parts) == room or "/".join(parts) == room


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
        for name in dict.fromkeys(
            f"{stem}.{alias.name}" if _is_ours(stem, alias.name) else module_of(stem, alias.name)
            for alias in node.names
        ):
            yield Import(name=name, line=node.lineno, at_load=at_load)
    inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, at_load=inside)


def _loaded(stem: str, name: str) -> str:
    """Return what `from stem import name` loads."""
    return f"{stem}.{name}" if _is_ours(stem, name) else module_of(stem, name)


def _is_ours(stem: str, name: str) -> bool:
    """Does an import from *stem* name one of our rooms or modules?"""
    first, *parts = (*stem.split("."), name)
    place = ROOT.joinpath(*parts)
    return first == PACKAGE and (place.is_dir() or place.with_suffix(".py").is_file())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.room)
def test_a_room_imports_only_what_it_may(rule: Rule) -> None:
    places = modules(rule.room)
    assert places, "a rule of no module"
    broken = [
        f"{path.relative_to(ROOT)}:{found.line} imports {found.name}: allowed {reason}"
        for path in places
        for found in imports_of(path)
        if (reason := rule.broken_by(found))
    ]
    assert broken == []


def test_every_room_has_a_rule() -> None:
    loose = {place.stem for place in ROOT.glob("*.py")}
    assert (loose | ROOMS) - {rule.room for rule in RULES} == set()


def test_another_room_is_imported_by_its_public_names() -> None:
    """But for a module as such, the names of `AMBIGUOUS`, and what gives a room its public names."""
    passed_by = [
        f"{path.relative_to(ROOT)}: {name} of {module}"
        for path, module, name in imported()
        for room in [_room_passed_by(path, module)]
        if room is not None
        if f"{module}.{name}" not in sources() and name not in AMBIGUOUS.get(room, ())
    ]
    assert passed_by == []


def _room_passed_by(path: Path, module: str) -> str | None:
    """Return the room of which a file imports an inner module, if it is another room than its own."""
    _, *rooms = module.split(".")
    return rooms[0] if len(rooms) > 1 and path.relative_to(ROOT).parts[0] != rooms[0] else None


@pytest.mark.parametrize("room", WITH_NAMES)
def test_the_stub_of_a_room_has_its_public_names(room: str) -> None:
    stub = ast.parse((ROOT / room / "__init__.pyi").read_text(encoding="utf-8"))
    eager = (n for n in sources()[f"{PACKAGE}.{room}"][1].body if isinstance(n, ast.ImportFrom))
    stated = {a.name: n.module for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    given = public_names(room) | {a.name: n.module for n in eager for a in n.names if n.module != "__future__"}
    assert stated == {name: module for name, module in given.items() if name not in {"annotations", "lazy_names"}}


@pytest.mark.parametrize("room", WITH_NAMES)
def test_each_public_name_is_there_and_is_used_by_another_room(room: str) -> None:
    home = importlib.import_module(f"{PACKAGE}.{room}")
    for name in public_names(room):
        getattr(home, name)
    used = {
        name
        for path, module, name in imported()
        if module == f"{PACKAGE}.{room}" and path.relative_to(ROOT).parts[0] != room
    }
    assert public_names(room).keys() - used == set()
    with pytest.raises(AttributeError):
        _ = home.no_such_name


def test_few_are_at_the_top() -> None:
    assert sum("/" not in room for room in ROOMS) <= TOP_FOLDERS
    assert len(list(ROOT.glob("*.py"))) <= LOOSE_FILES


FACES = {"operators", "sensors", "triggers", "hooks", "plugins", "page", "cli"}
"""Rooms of what users call: a module there may have the name of the module that does it."""
KINDS = {"formats/avro", "formats/protobuf"}
"""Rooms whose modules do the same for another format."""


def test_no_two_modules_share_a_name() -> None:
    found: dict[str, set[str]] = {}
    for place in (path.relative_to(ROOT).with_suffix("") for path, _ in sources().values()):
        room = place.parent.as_posix()
        if place.name != "__init__" and place.parts[0] not in FACES:
            found.setdefault(place.name, set()).add("a format" if room in KINDS else room)
    assert len(found) > 300
    assert {name: rooms for name, rooms in found.items() if len(rooms) > 1} == {}


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
        ("core", "def f():\n    from airflow_provider_lakecommit.control import plan_json", "of our own only"),
        ("core", "from airflow_provider_lakecommit import hooks", "of our own only"),
        ("core", "from ..control import plan_json", "of our own only"),
        ("control/plan_json", "import pyarrow as pa", "only the standard library and"),
        ("spark", "def f():\n    import airflow.sdk", "never"),
        ("cycle/plan", "import pyspark.sql", "never"),
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


LIGHT = "landing,core,control,kafka,iceberg,stall,cycle,operations,status,telemetry,spark.launch,formats.evolution,cli"
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
        ("pyspark,py4j,airflow,pyiceberg,confluent_kafka,pyarrow", "landing,core,get_provider_info"),
        ("pyspark,py4j,airflow,pyiceberg,pyarrow", "kafka,stall"),
        ("airflow", "spark,formats"),
    ],
)
def test_what_needs_no_spark_or_airflow_runs_without(blocked: str, rooms: str) -> None:
    answer = load_without(blocked, rooms)
    assert answer.startswith("loaded"), answer


def test_the_block_is_a_block() -> None:
    assert "blocked by the test" in load_without("json", "landing")
