# SPDX-License-Identifier: Apache-2.0
"""Register a table with its newest metadata file, where the catalog knows an older one."""

from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
newest = "file:///tmp/lake/warehouse/shop/orders/metadata/00042-….metadata.json"  # the highest number in the folder
catalog.drop_table("shop.orders")  # forgets the table, keeps its files
catalog.register_table("shop.orders", newest)
