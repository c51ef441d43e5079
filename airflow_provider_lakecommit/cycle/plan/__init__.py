# SPDX-License-Identifier: Apache-2.0
"""Plan: what a window needs to know is read, decided by :mod:`~airflow_provider_lakecommit.core.planning`, and the
cycle is opened.
"""
