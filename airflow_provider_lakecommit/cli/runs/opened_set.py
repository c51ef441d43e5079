# SPDX-License-Identifier: Apache-2.0
"""Open a landing set with the shared connections of its landings, for commands that read all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_lakecommit.cycle import CLIENTS, Expansion, SetConnections, found_landings
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import LandingSetSpec
from airflow_provider_lakecommit.spark import CLI


@contextmanager
def opened_set(spec: LandingSetSpec) -> Iterator[tuple[Expansion, Tables, SetConnections]]:
    expansion = found_landings(spec.landing_set, spec.kafka)
    tables = Tables(spec.catalog, few=CLIENTS)
    try:
        with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment=CLI) as connections:
            yield expansion, tables, connections
    finally:
        tables.close()
