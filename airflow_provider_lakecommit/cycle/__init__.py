# SPDX-License-Identifier: Apache-2.0
"""One commit cycle as functions: open (plan), write (a group's job), close (commit). Operators and the CLI call the
same ones.

They read, let :mod:`~airflow_provider_lakecommit.core` decide, and act; they know neither Airflow nor Spark.
"""
