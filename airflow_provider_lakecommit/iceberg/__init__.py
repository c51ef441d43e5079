# SPDX-License-Identifier: Apache-2.0
"""Catalog, table specs and types, data files and their storage; ledgers and the one compare-and-swap."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "arrow_io": "ArrowFileIO",
        "catalog": "Tables",
        "data_files": "is_data partition_fields rows_in_footer to_pyiceberg to_wire",
        "file_io": "GuardedFileIO location_problem",
        "ledger.append": "AppendRequest PublishOutcome publish",
        "ledger.blocking_pool": "BlockingPool ExitError",
        "ledger.branch": "Unpublished ensure_branch move_main release require_together restart unpublished",
        "ledger.slice_checks": "Grounds StagedSlice",
        "ledger.compaction": "Compacted compact_table compacted_of debt_of require_present",
        "ledger.delete_files": "Superseded",
        "ledger.excess_rows": "KeyRows rekey_table",
        "ledger.executor": "Committer CommitterThread",
        "ledger.head": "Head HeadReader",
        "ledger.ledger": (
            "Condition LedgerState ancestry expiry_age_ms landing_snapshots read_ledger require_ledger "
            "needs_refresh tag_name unannounced"
        ),
        "ledger.ledger_by_hand": "OtherSections assert_section prune_sections set_section",
        "ledger.ledger_updates": (
            "refresh_ledger change_section check_no_other join_table renew_epochs restore_tag swap_sections"
        ),
        "ledger.newest": "Columns Order live_rows rank",
        "ledger.other_rows": (
            "ADOPTED_FROM RESCUED SinkTurn check_adopted check_not_brought_back check_turn sink_commits "
            "sink_commits_text sink_turn turn_is_over was_handed"
        ),
        "ledger.outcome_lookup": "RetryPolicy",
        "ledger.overwrite": "Rewrite",
        "ledger.replace": "Removal ReplaceRequest epochs_of is_due replace_ranges require_ranges",
        "ledger.replaced": "REPLACED Replaced ends_epoch replaced_of",
        "ledger.stage": "Attempt Change stage_untagged",
        "ledger.summary": "LogPoint SnapshotKind SnapshotRecord has_ledger record_of sections_of",
        "ledger.summary_extras": (
            "DELETED EVOLVED LOOKED_UP MOVED REPLAYED SPEC SUPERSEDED had_before merged_sections moved_lanes "
            "pruned_sections replay_of replay_to_text"
        ),
        "ledger.supersede": "bound_of buckets_of",
        "ledger.swap": "Swapped check_tags compare_and_swap ledger_change",
        "ledger.trim": "expire_older old_snapshots trim_snapshots",
        "ledger.upsert_rule": "UpsertRule check_key check_key_columns key_text",
        "parquet.arrow_types": "arrow_field arrow_schema",
        "parquet.deletes": "DeletePositions Deletes deletes_of write_deletes",
        "parquet.key_set": "KeySet hashes order_numbers",
        "parquet.layout": "Layout check_target",
        "parquet.parquet": "FileFormat",
        "parquet.parquet_rows": "Numbers ParquetRows opened",
        "parquet.rewrite": "GroupedFile live_blocks physical_schema",
        "parquet.statistics": "Metrics",
        "parquet.fanout_writer": "FanoutWriter",
        "schemas": "DEAD_LETTER_SCHEMA METADATA_TYPES OPTIONAL_DEAD_LETTER_COLUMNS mark_columns record_column_ids",
        "settings": "as_text",
        "sql_catalog": "catalog_name",
        "storage": "TableStorage clock data_folder delete_unused trouble_of",
        "table_spec": "columns_from_spec create_from_spec sort_order_from_spec",
    },
)
