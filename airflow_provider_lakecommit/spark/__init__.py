# SPDX-License-Identifier: Apache-2.0
"""The window job: read, decode, write and report slices. It imports nothing of Airflow."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "decoders": (
            "block_decoder check_rules check_schema filled_beside_rows filled_elsewhere given_columns tables_of_values "
            "with_schemas"
        ),
        "job": "Secrets SliceResult SliceStatus WindowJob decoded_of running_of",
        "launch.base": "EarlierWorkError Engine",
        "launch.connect": "ConnectEngine",
        "launch.java": "JAVA_REMEDY java_here",
        "launch.local": "LocalSpark SparkSection engine_of",
        "launch.package": "PACKAGE package_zip",
        "launch.process": "CLI ProcessName",
        "launch.replicas": "run_replicas",
        "launch.scratch": "LOAD_DEFAULTS REDACTION save_properties scratch_folder",
        "main": "WORKERS_DIED",
        "metadata": "with_metadata",
        "proof": "ProofSlice proof_target read_proof result_path",
        "probe": "local_view run_probe try_storage",
        "report": "marks_of",
        "task": "QUIET",
        "upserts": "check_upsert",
        "watches": "CycleReports",
    },
)
