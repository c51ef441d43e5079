# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration; `make docs` turns every warning into an error."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

# The pages of the operators import Airflow, which makes its home where it finds none.
AIRFLOW_HOME = tempfile.TemporaryDirectory(prefix="lakecommit-docs-")
os.environ.update(AIRFLOW_HOME=AIRFLOW_HOME.name, AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING")

from airflow_provider_lakecommit import __version__  # noqa: E402

project = "airflow-provider-lakecommit"
author = "The airflow-provider-lakecommit authors"
copyright = author
version = release = __version__

extensions = ["sphinx.ext.autodoc", "lakecommit_docs"]
exclude_patterns = ["_build", "_ext", "reference/_behavior.rst"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["lakecommit.css"]
html_title = f"Lakecommit {__version__}"

# Messages and commands stay as they are typed: no long dashes, no curved quotes.
smartquotes = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Code in the prose of docstrings is written as `code`.
default_role = "code"
