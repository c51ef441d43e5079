# SPDX-License-Identifier: Apache-2.0
"""Pure decisions about offsets, plans, the control log and what is published. Standard library only; no I/O, no
clock.
"""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "accounting": (
            "MOST_NAMES NAME_LENGTH ODD_TIME add_names counts_by_partition report_problem rows_problem spans_problem "
            "summed total_of"
        ),
        "blocks": "FAILURES_TO_BLOCK lifted own_budget",
        "budgets": "Over PendingBudget WARNED_RATIO blocking done_reports over_budget over_by_window parse_budget",
        "debt": "DUE TableDebt",
        "commands": (
            "BACKFILL CONNECT_ADOPT CONNECT_RESCUE DEAD_LETTERS DOCTOR HISTORY LAND MAINTAIN "
            "PAUSE PROGRAM PUBLISH_NOW RESET_ASSERT RESET_BLOCKED RESET_HARD RESET_KEY RESET_MIGRATE "
            "RESET_OFFSETS RESUME STATUS UNBLOCK VERIFY for_landing spoken"
        ),
        "connection_names": "CONNECTION_ID connection_suffix named",
        "formats": "DEFAULTS FORMATS FormatOptions SCHEMA_NAMES SCHEMA_SOURCES UNCOUNTED WITH_REGISTRY",
        "identity": "attempt_id cycle_id group_id is_attempt_at set_of slice_id token transactional_id window_id",
        "log": (
            "AttemptsVoided CommitFailed CycleClosed CycleOpened Decision Directives EndRequested Entry "
            "MOST_TEXT Raised SliceFiles SliceReported TablePublished Unreadable announced_in "
            "kept_decisions rows_of"
        ),
        "model": (
            "AdoptedSink Budget ControlPosition Counts Cycle FILLED LIVE LedgerSection Plan ReadPosition "
            "Slice SliceCost SliceReport Span SpanReport TableReport TableTarget filled_from is_filled source_group"
        ),
        "offsets": "Coverage NOTHING OffsetRange RangeSet SourcePartition",
        "outcome": "Commit Ended FAILED Verdict decide outcome_line",
        "locations": (
            "PLACING PROVIDER REPLAY REWRITE attempt_of data_roots file_mark file_name landing_mark "
            "mark_of name_problem named_provider path_problem storage_location"
        ),
        "planning.admission": "HANDED_BACK REASON_LENGTH Refuse Terms catalog_away resumed_by spec_waits",
        "planning.backlog": "Backlog BacklogLimits planned_after unplanned",
        "planning.decide": "PlanInputs abandoned decide_plan empty_plan free_slot",
        "planning.window_target": "lopsided sized",
        "planning.headroom": (
            "Headroom Retention first_times interval_of next_time oldest_unread source_notes threshold_of"
        ),
        "planning.measure": "MEASURED WindowCost measure newest to_text",
        "planning.missing": "Missing Watermark WindowLimits by_tables find_missing needs_size_check",
        "planning.restart": "Restart StatedOffsets restart",
        "planning.truncation": (
            "Truncation first_offsets_of goes_on_at in_doubt known_positions lost_rows newest_positions "
            "positions_up_to reported_rows"
        ),
        "planning.voiding": (
            "Rescued irreplaceable losses losses_text other_rules outruled removed rescued voidable_slices"
        ),
        "provenance": (
            "COORDINATES Provenance RowsPerOffset Share added past_shares same_readings shares_of unmarked without_rows"
        ),
        "refusal": "WHY_BLOCKED RefusalState",
        "destinations": ("BY_FIELD BY_SCHEMA DEAD_LETTER FAIL NOT_ROUTED Role Route role_of schemas_of tables_for"),
        "rules": (
            "EvaluatedBy UNKNOWN current_readings differing evaluated_in evaluated_otherwise merged "
            "rules_of unevaluated"
        ),
        "settle": "CLOCKS_APART chunks holes passed_by_all passed_ends valid_through",
        "formatting": "partitions_text short_number",
        "state": "AcceptedSlice CycleState LandingState TableLedger granted",
        "status_fields": "account_fields cycle_fields lag_fields partition_fields pending_fields",
    },
)
