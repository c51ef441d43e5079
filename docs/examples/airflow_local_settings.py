# SPDX-License-Identifier: Apache-2.0
"""Have Celery's workers load what tasks need before they fork them."""

from airflow_provider_lakecommit.preload import preload

preload()
