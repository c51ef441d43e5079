# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify`: check that ledger, counts and files of a landing's tables agree over their whole history.

Reads only the tables, and with `--source` their records again, by a Spark job. Notes (commits of other writers,
expired history, ranges that cannot be compared) do not change the exit code.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cli.terminal.stop import Signals
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.status import Severity, verified_text, verified_to_dict, verify_tables

if TYPE_CHECKING:
    from airflow_provider_lakecommit.operations import Proof
    from airflow_provider_lakecommit.status import Finding


def verify(spec: LandingSpec, options: Namespace, output: Output) -> int:
    """Check and report; by default, files on a local disk are checked too."""
    if options.sample and not options.spark:
        options.usage_error("--sample needs --source")
    landing, tables = spec.landing, Tables(spec.catalog)
    histories, findings = verify_tables(
        landing, tables, output.log, files=options.files, rows=options.rows, keys=options.keys
    )
    more: dict[str, Any] = {}
    if options.spark:
        proof, told = _prove(spec, options.sample or (), output)
        findings, more = [*findings, *told], {"source": proof.to_dict()}
    wrong = [f for f in findings if f.level is Severity.WRONG]
    values = {**verified_to_dict(landing, histories, findings), **more}
    output.answer(values, verified_text(landing, histories, findings))
    if wrong:
        output.log(f"lakecommit: {landing.name}: {len(wrong)} problems")
    return Exit.REFUSED if wrong else Exit.DONE


def _prove(spec: LandingSpec, sample: Sequence[str], output: Output) -> tuple[Proof, list[Finding]]:
    """Compare with the source. A stopped command deletes the scratch files of finished tasks before it ends."""
    from airflow_provider_lakecommit.operations import parse_ranges, sample_of, source_findings
    from airflow_provider_lakecommit.spark import SparkSection, engine_of

    landing, log, sample_request = spec.landing, output.log, sample_of(sample, parse_ranges)
    with Signals() as signals, LandingSession.connect(landing, spec.kafka, spec.catalog, log=log) as session:
        engine = engine_of(SparkSection(spec.spark), landing.name, log=log, on_start=signals.install, lane="verify")
        try:
            return source_findings(session, sample_request, engine, log)
        finally:
            engine.close()
