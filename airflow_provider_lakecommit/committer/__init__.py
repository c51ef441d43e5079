# SPDX-License-Identifier: Apache-2.0
"""The committer: what is in a table, read from the table, and the one compare-and-swap that adds to it."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "other_rows": (
            "ADOPTED_FROM RESCUED SinkTurn check_adopted check_not_brought_back check_turn sink_commits "
            "sink_commits_text sink_turn turn_is_over was_handed"
        ),
        "branch": "Unpublished ensure_branch move_main release require_together restart unpublished",
        "append": "AppendRequest PublishOutcome publish",
        "blocking_pool": "BlockingPool ExitError",
        "checks": "Grounds StagedSlice",
        "compact": "Compacted compact_table compacted_of debt_of require_present",
        "delete_files": "Superseded",
        "executor": "Committer CommitterThread",
        "head": "Head HeadReader",
        "ledger": (
            "Condition LedgerState ancestry expiry_age_ms landing_snapshots read_ledger require_ledger "
            "needs_refresh tag_name unannounced"
        ),
        "ledger_by_hand": "OtherSections assert_section prune_sections set_section",
        "ledger_updates": (
            "refresh_ledger change_section check_no_other join_table renew_epochs restore_tag swap_sections"
        ),
        "newest": "Columns Order live_rows rank",
        "outcome_lookup": "RetryPolicy",
        "overwrite": "Rewrite",
        "replace": "Removal ReplaceRequest epochs_of is_due replace_ranges require_ranges",
        "replaced": "REPLACED Replaced ends_epoch replaced_of",
        "stage": "Attempt Change stage_untagged",
        "summary": "LogPoint SnapshotKind SnapshotRecord has_ledger record_of sections_of",
        "summary_extras": (
            "DELETED EVOLVED LOOKED_UP MOVED REPLAYED SPEC SUPERSEDED had_before merged_sections moved_lanes "
            "pruned_sections replay_of replay_to_text"
        ),
        "supersede": "bound_of buckets_of",
        "swap": "Swapped check_tags compare_and_swap ledger_change",
        "trim": "expire_older old_snapshots trim_snapshots",
        "excess_rows": "KeyRows rekey_table",
        "upsert_rule": "UpsertRule check_key check_key_columns key_text",
    },
)
