# SPDX-License-Identifier: Apache-2.0
"""Let all snapshots of a table expire: no landing will go on with it."""

from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
catalog.load_table("shop.orders").manage_snapshots().remove_tag("lakecommit-main").commit()
