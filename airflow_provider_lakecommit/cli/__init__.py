# SPDX-License-Identifier: Apache-2.0
"""`lakecommit`: the same cycles as in a DAG, from a YAML spec and without Airflow; and commands to inspect and fix."""
