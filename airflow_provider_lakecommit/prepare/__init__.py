# SPDX-License-Identifier: Apache-2.0
"""What is read, and settled in the ledgers, before a window is planned: tables and epochs, what the source still has,
limits and headroom. The decisions are those of :mod:`~airflow_provider_lakecommit.planning`.
"""
