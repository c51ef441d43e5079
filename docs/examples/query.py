# SPDX-License-Identifier: Apache-2.0
"""Read what was landed, by pyiceberg: the rows of the last day, and where they came from."""

from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import GreaterThanOrEqual

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
orders = catalog.load_table("shop.orders")
recent = orders.scan(
    row_filter=GreaterThanOrEqual("ts", "2026-01-04T00:00:00+00:00"), selected_fields=("id", "amount")
).to_arrow()
print(f"{recent.num_rows} orders since 4 January")
for snapshot in orders.snapshots():
    print(snapshot.snapshot_id, {k: v for k, v in snapshot.summary.additional_properties.items() if "records" in k})
