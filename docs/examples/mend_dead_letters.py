# SPDX-License-Identifier: Apache-2.0
"""Mend the values of dead letters where they are: ids that were written as "x17" are 17."""

import re

import pyarrow as pa
from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="sql", uri="sqlite:////tmp/lake/catalog.db", warehouse="file:///tmp/lake/warehouse")
table = catalog.load_table("shop.orders_dead")
rows = table.scan().to_arrow().to_pylist()
for row in rows:
    row["value"] = re.sub(rb'"id": "x(\d+)"', rb'"id": \1', row["value"])
table.overwrite(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
