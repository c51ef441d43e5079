# SPDX-License-Identifier: Apache-2.0
from airflow_provider_lakecommit.page.app import create_app as create_app
from airflow_provider_lakecommit.page.landings import page_topics as page_topics
from airflow_provider_lakecommit.page.reader import PageReader as PageReader
