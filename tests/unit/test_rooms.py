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


RULES = (
    Rule(room="core", only=frozenset(), rooms=frozenset({"core", "exceptions"})),
    Rule(room="wire", only=frozenset({"fastavro"}), rooms=frozenset({"wire", "core", "exceptions"})),
    Rule(room="exceptions", only=frozenset(), rooms=frozenset()),
    Rule(room="get_provider_info", only=frozenset(), rooms=frozenset()),
    Rule(room="__init__", only=frozenset(), rooms=frozenset()),
    Rule(room="preload", only=frozenset(), rooms=frozenset()),
    Rule(room="plugins", only=AIRFLOW, rooms=frozenset({"plugins", "preload"})),
    Rule(room="landing", nowhere=SPARK, lazily=AIRFLOW | HEAVY),
    Rule(room="landing_checks", only=frozenset(), rooms=frozenset()),
    Rule(room="spark", nowhere=AIRFLOW),
    Rule(room="committer", nowhere=AIRFLOW | SPARK),
    Rule(room="cycle", nowhere=AIRFLOW, lazily=SPARK),
    Rule(room="hooks", lazily=SPARK),
    Rule(room="doctor", nowhere=AIRFLOW, lazily=SPARK),
    Rule(room="cli", nowhere=AIRFLOW, lazily=SPARK),
    Rule(room="settings", nowhere=SPARK, lazily=AIRFLOW | HEAVY),
    Rule(room="assets", nowhere=SPARK, lazily=AIRFLOW | HEAVY),
    Rule(room="operators", lazily=SPARK),
    Rule(room="task_groups", nowhere=SPARK, lazily=HEAVY),
    Rule(room="sensors", nowhere=SPARK | LAKE, lazily=HEAVY),
    Rule(room="triggers", nowhere=SPARK | LAKE, lazily=HEAVY),
    Rule(room="notifications", nowhere=SPARK | LAKE | HEAVY),
)
#: The only modules of hooks/ that know Airflow: everything else there also serves the command line.
AIRFLOW_HOOKS = {ROOT / "hooks" / f"{name}.py" for name in ("connections", "engines", "kafka_connect", "spark")}


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


def test_only_few_hooks_know_airflow() -> None:
    knowing = {path for path in modules("hooks") if any(found.top == "airflow" for found in imports_of(path))}
    assert knowing <= AIRFLOW_HOOKS


@pytest.mark.parametrize(
    ("room", "source", "reason"),
    [
        ("core", "import fastavro", "only the standard library and nothing else"),
        ("core", "def f():\n    from airflow_provider_lakecommit.wire import plan", "of our own only"),
        ("core", "from airflow_provider_lakecommit import hooks", "of our own only"),
        ("core", "from ..wire import plan", "of our own only"),
        ("wire", "import pyarrow as pa", "only the standard library and"),
        ("spark", "def f():\n    import airflow.sdk", "never"),
        ("cycle", "import pyspark.sql", "only inside a function"),
        ("hooks", "class A:\n    from pyspark import sql", "only inside a function"),
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
    there = [room for room in rooms.split(",") if modules(room)]
    command = [sys.executable, "-c", WITHOUT, PACKAGE, blocked, ",".join(there or ["get_provider_info"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    # Airflow may log to standard output before
    return done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr


@pytest.mark.parametrize(
    ("blocked", "rooms"),
    [
        ("pyspark,py4j", "landing,core,wire,hooks,committer,cycle,doctor,cli,operators,task_groups"),
        ("pyspark,py4j,pyarrow,pyiceberg,pandas", "sensors,triggers,notifications"),
        ("pyspark,py4j,airflow", "landing,core,wire,committer,cycle,doctor,cli"),
        ("pyspark,py4j,airflow,pyiceberg,confluent_kafka,pyarrow", "landing,core,wire,get_provider_info"),
        ("airflow", "spark"),
    ],
)
def test_what_needs_no_spark_or_airflow_runs_without(blocked: str, rooms: str) -> None:
    answer = load_without(blocked, rooms)
    assert answer.startswith("loaded"), answer


def test_the_block_is_a_block() -> None:
    assert "blocked by the test" in load_without("json", "landing")
