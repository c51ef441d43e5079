# SPDX-License-Identifier: Apache-2.0
"""Schema evolution: columns that records have and a data table lacks are added, types that are too narrow are widened.

Reading order: :mod:`~airflow_provider_lakecommit.formats.evolution.changes` (the decision, pure),
:mod:`~airflow_provider_lakecommit.formats.evolution.schema` (a schema with the changes),
:mod:`~airflow_provider_lakecommit.formats.evolution.inferred` (the door to where wanted columns come from),
:mod:`~airflow_provider_lakecommit.formats.evolution.schema_commit` (the one commit that changes a table).
"""
