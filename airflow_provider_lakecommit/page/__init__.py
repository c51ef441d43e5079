# SPDX-License-Identifier: Apache-2.0
"""The page "Lake commits" of the Airflow UI, and the status API that it uses."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(__name__, {"app": "create_app", "landings": "page_topics", "reader": "PageReader"})
