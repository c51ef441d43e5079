# SPDX-License-Identifier: Apache-2.0
"""Add an optional column to a table, while it is landed into."""

from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
with catalog.load_table("shop.orders").update_schema() as update:
    update.add_column("channel", StringType(), "where it was sold")
