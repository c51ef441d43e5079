# SPDX-License-Identifier: Apache-2.0
"""Plan: read what a window depends on, let :mod:`~airflow_provider_lakecommit.core.planning` decide, and open the
cycle.
"""
