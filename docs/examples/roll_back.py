# SPDX-License-Identifier: Apache-2.0
"""Take the newest snapshot of both tables of a landing back."""

from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
for name in ("shop.orders", "shop.orders_dead"):
    table = catalog.load_table(name)
    before = table.current_snapshot().parent_snapshot_id
    if before is not None:
        table.manage_snapshots().rollback_to_snapshot(before).commit()
        print(f"{name} is back at {before}")
