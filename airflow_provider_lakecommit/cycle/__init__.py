# SPDX-License-Identifier: Apache-2.0
"""One commit cycle as functions: open (plan), write (a group's job), close (commit). Operators and the CLI share them.

They read, let :mod:`~airflow_provider_lakecommit.core` decide, and act; they import neither Airflow nor Spark.
"""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "commit.audit": "unpublished_of",
        "commit.close": "close_cycle waiting_slices",
        "commit.drain": "drain",
        "commit.prepared": "prepare_for_commit",
        "commit.reported": "hidden_record report_problem staged_slice",
        "commit.row_check": "RowsToCheck try_check",
        "run_outcome": "CycleOutcome RunOutcome first_of",
        "plan.ledger_upkeep": "LedgerUpkeep",
        "plan.headroom_watch": "headroom_now plan_threshold warnings",
        "plan.known": (
            "all_entries check_first_run first_offsets joining_offsets ledger_state ledger_states remembered "
            "unknown_text"
        ),
        "plan.open": "evolve_now open_cycle preview",
        "plan.open_lanes": "OpenLane lanes_in open_lanes",
        "plan.reports": (
            "all_sections endangered known_section known_state own_partition unsigned_ranges unsigned_text"
        ),
        "plan.resume": "cycles_of EarlierCycles published_by snapshot_of",
        "plan.lane_sections": "new_section initial_position positions_at",
        "plan.start": "empty_plan new_cycle send_start start_without_tables ticket_of",
        "plan.ready_tables": "Prepared PreparedTable prepare prepared_table table_ledger",
        "plan.truncation_check": "check_logs_of_lane diverged_logs",
        "results": "Closed CycleTicket GroupResult GroupTicket Opened PublishedSnapshot merged_snapshots",
        "run.follow": "Follow runner_of",
        "run.interval": "Total WindowLog",
        "run.loop": "LandingRunner",
        "run.pauses": "MOST_IDLE_CYCLES",
        "run.next_window": "FollowOptions",
        "session.concurrent": "ConcurrentLandings in_thread",
        "session.early_end": "EarlyEnd end_cycle end_job",
        "session.landing_session": "BEYOND FoldedLog LandingSession RunIdentity cycle_id_of",
        "session.moments": "offsets_at",
        "session.ports": "ControlPort SourcePort",
        "session.progress": "Progress report_progress",
        "session.secrets": "LEAST_SECONDS secrets_for vended_of",
        "session.tables": "check_fit table_of target_of",
        "session.turns": "cycles_since successor_of",
        "sets.bundles": "BundledGroup dealt label_of",
        "sets.combined": "Combined",
        "sets.shared_connections": "CLIENTS for_all found_landings SetConnections",
        "sets.expansion": "Expansion",
        "sets.former": "FormerLanding format_former landings_to_publish",
        "sets.former_scan": "former_landings former_named start_former",
        "sets.plans": "IDLE SetPlans has_no_record landing_ready plans_of with_schema without_records",
        "jobs.write": "GroupWrite run_groups",
    },
)
