# SPDX-License-Identifier: Apache-2.0
"""`lakecommit doctor`: check everything that a landing needs; a ``warn`` does not change the exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.status import LANDING_ROLES, CheckResult, Level, Role, examine


def doctor(spec: LandingSpec, options: Namespace, output: Output) -> int:
    roles = tuple(Role(name) for name in dict.fromkeys(options.role or ())) or LANDING_ROLES
    found = examine(
        spec, output.log, every=options.every, spark=options.spark, roles=roles, deployment=options.deployment
    )
    bad = [f for f in found if f.level is Level.FAIL]
    findings = [{"check": f.check, "level": f.level.value, "seen": f.observed, "remedy": f.remedy} for f in found]
    values = {"landing": spec.landing.name, "ok": not bad, "findings": findings}
    output.answer(values, _text(spec.landing.name, found))
    return Exit.REFUSED if bad else Exit.DONE


def _text(name: str, found: Sequence[CheckResult]) -> Iterable[str]:
    width = max(len(f.check) for f in found)
    for f in found:
        yield f"{f.level.value:<4}  {f.check:<{width}}  {f.observed}"
        if f.remedy:
            yield f"{'':<4}  {'':<{width}}  -> {f.remedy}"
    counts = {level: sum(f.level is level for f in found) for level in Level}
    numbers = ", ".join(f"{n} {level.value}" for level, n in counts.items() if n or level is not Level.SKIP)
    yield f"{name}: {numbers}"
