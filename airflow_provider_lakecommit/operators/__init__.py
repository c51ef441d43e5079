# SPDX-License-Identifier: Apache-2.0
"""The Airflow operators of a commit cycle. They read, let :mod:`~airflow_provider_lakecommit.core` decide, and act.

Import them from their modules; this package itself imports nothing, so that parsing a DAG costs only what it uses.
"""
