# SPDX-License-Identifier: Apache-2.0
"""Catalog, table specs and types, data files and their storage."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "catalog": "KEEP_SNAPSHOTS Tables",
        "catalog_errors": "is_no_room",
        "data_files": "is_data partition_fields rows_in_footer to_pyiceberg to_wire",
        "arrow_io": "ArrowFileIO",
        "file_io": "GuardedFileIO location_problem",
        "guarded_catalog": "own_locations",
        "parquet.arrow_types": "arrow_field arrow_schema",
        "parquet.deletes": "DeletePositions Deletes deletes_of sorted_once write_deletes",
        "parquet.key_set": "KeySet equal_rows hashes order_numbers",
        "parquet.layout": "Layout check_target",
        "parquet.parquet": "FileFormat",
        "parquet.parquet_rows": "Numbers ParquetRows live_of one_array opened",
        "parquet.partitions": "transformed",
        "parquet.rewrite": "GroupedFile live_blocks partition_constants physical_schema repeated",
        "parquet.statistics": "Metrics",
        "parquet.write": "FanoutWriter",
        "schemas": "DEAD_LETTER_SCHEMA METADATA_TYPES OPTIONAL_DEAD_LETTER_COLUMNS mark_columns record_column_ids",
        "settings": "as_text",
        "sql_catalog": "catalog_name",
        "storage": "TableStorage clock data_folder delete_unused trouble_of",
        "table_spec": "columns_from_spec create_from_spec sort_order_from_spec",
    },
)
