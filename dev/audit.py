# SPDX-License-Identifier: Apache-2.0
"""Known vulnerabilities of what `requirements-dev.txt` locks, asked by pip-audit.

Contract: ends with 0 only if the database answered for *every* locked version and knows of nothing. Where it could not
be asked, nothing is known, and that is a failure that says so. Arguments are passed on to pip-audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dev.paths import CHECKOUT

LOCK = "requirements-dev.txt"
PIP_AUDIT = (sys.executable, "-m", "pip_audit")
SHOWN = 5
REMEDY = "Ask again where the database can be reached, or another one: make audit AUDIT='--vulnerability-service osv'"


def report(answer: Mapping[str, Any]) -> tuple[list[str], int]:
    """What to print of pip-audit's answer, and the exit code."""
    found, unknown = [], []
    for one in answer["dependencies"]:
        if "skip_reason" in one:
            unknown.append(one["skip_reason"])
        for vulnerability in one.get("vulns", ()):
            fixed = ", ".join(vulnerability["fix_versions"]) or "no release yet"
            found.append(f"{one['name']} {one['version']}: {vulnerability['id']}, mended in {fixed}")
    if unknown:
        found.append(f"NOT AUDITED: {len(unknown)} of {len(answer['dependencies'])}, nothing is known of them:")
        found += [f"  {reason}" for reason in unknown[:SHOWN]]
        found += [f"  and {len(unknown) - SHOWN} more"] if len(unknown) > SHOWN else []
        found.append(REMEDY)
    if not found:
        return [f"{len(answer['dependencies'])} locked versions, no vulnerability is known of them"], 0
    return found, 1


def main(arguments: Sequence[str]) -> int:
    """Ask and print."""
    command = [*PIP_AUDIT, "--requirement", LOCK, "--require-hashes", "--disable-pip", "--format", "json"]
    command += ["--progress-spinner", "off", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = [line for line in done.stderr.splitlines() if line.strip()][-SHOWN:]
        print("NOT AUDITED: pip-audit got no answer. It said:", *last, REMEDY, sep="\n  ", file=sys.stderr)
        return 1
    lines, code = report(answer)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
