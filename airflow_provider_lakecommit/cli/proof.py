# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify --source`: a stopped command deletes its scratch files before it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.cli.terminal.stop import Signals
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.operations import Sample, parse_ranges, sample_of, source_findings
from airflow_provider_lakecommit.spark import SparkSection, engine_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.operations.proof.prove import Proof
    from airflow_provider_lakecommit.status import Finding


def prove(spec: LandingSpec, sample: Sequence[str], output: Output) -> tuple[Proof, list[Finding]]:
    """Compare the landing's tables with its source."""
    wanted = sample_of(sample, parse_ranges) if sample else Sample()
    with (
        Signals() as signals,
        LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session,
    ):
        engine = engine_of(
            SparkSection(spec.spark), spec.landing.name, log=output.log, on_start=signals.install, lane="verify"
        )
        try:
            found = source_findings(session, wanted, engine, output.log)
            signals.check()
            return found
        finally:
            engine.close()
