# SPDX-License-Identifier: Apache-2.0
"""The part of Spark Connect's wire protocol that window jobs need, as this package's own message classes.

Contract: :func:`message` returns a protobuf class that reads and writes the same bytes as the message of that name in
Spark's `spark/connect/*.proto`, the published interface between releases. Only the fields named here exist; others are
kept unread. A test compares every number and type with pyspark's definitions.

Reason: importing pyspark's client costs each task more than a window takes (it loads pandas), and finding running work
would depend on its private names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

PACKAGE = "lakecommit.connect"
"""A package name of our own: pyspark's definitions may be loaded in the same process, and names are not on the wire."""

MESSAGES: Mapping[str, str] = {
    "UserContext": "1 user_id string",
    "KeyValue": "1 key string, 2 value string",
    # What is to be done
    "Plan": "1 root Relation",
    "Relation": "1 common RelationCommon, 15 range Range, 28 map_partitions MapPartitions",
    "RelationCommon": "2 plan_id int64",
    "Range": "1 start int64, 2 end int64, 3 step int64, 4 num_partitions int32",
    "MapPartitions": "1 input Relation, 2 func CommonInlineUserDefinedFunction",
    "CommonInlineUserDefinedFunction": "1 function_name string, 2 deterministic bool, 4 python_udf PythonUDF",
    "PythonUDF": "1 output_type DataType, 2 eval_type int32, 3 command bytes, 4 python_ver string",
    "DataType": "24 unparsed DataType.Unparsed",
    "DataType.Unparsed": "1 data_type_string string",
    # Operations
    "ReattachOptions": "1 reattachable bool",
    "ExecutePlanRequest.RequestOption": "1 reattach_options ReattachOptions",
    "ExecutePlanRequest": (
        "1 session_id string, 2 user_context UserContext, 3 plan Plan, 4 client_type string, "
        "5 request_options ExecutePlanRequest.RequestOption*, 6 operation_id string, 7 tags string*"
    ),
    "ReattachExecuteRequest": (
        "1 session_id string, 2 user_context UserContext, 3 operation_id string, 4 client_type string, "
        "5 last_response_id string"
    ),
    "ExecutePlanResponse.ArrowBatch": "1 row_count int64, 2 data bytes",
    "ExecutePlanResponse.ExecutionProgress": "2 num_inflight_tasks int64",
    "ExecutePlanResponse.ResultComplete": "",
    "ExecutePlanResponse": (
        "2 arrow_batch ExecutePlanResponse.ArrowBatch, 12 operation_id string, 13 response_id string, "
        "14 result_complete ExecutePlanResponse.ResultComplete, "
        "18 execution_progress ExecutePlanResponse.ExecutionProgress"
    ),
    "ReleaseExecuteRequest.ReleaseAll": "",
    "ReleaseExecuteRequest": (
        "1 session_id string, 2 user_context UserContext, 3 operation_id string, 4 client_type string, "
        "5 release_all ReleaseExecuteRequest.ReleaseAll"
    ),
    "ReleaseExecuteResponse": "",
    "InterruptRequest": (
        "1 session_id string, 2 user_context UserContext, 3 client_type string, 4 interrupt_type enum, "
        "5 operation_tag string, 6 operation_id string"
    ),
    "InterruptResponse": "2 interrupted_ids string*",
    # The session
    "ConfigRequest.Set": "1 pairs KeyValue*",
    "ConfigRequest.GetOption": "1 keys string*",
    "ConfigRequest.Unset": "1 keys string*",
    "ConfigRequest.Operation": (
        "1 set ConfigRequest.Set, 4 get_option ConfigRequest.GetOption, 6 unset ConfigRequest.Unset"
    ),
    "ConfigRequest": (
        "1 session_id string, 2 user_context UserContext, 3 operation ConfigRequest.Operation, 4 client_type string"
    ),
    "ConfigResponse": "2 pairs KeyValue*",
    "AddArtifactsRequest.ArtifactChunk": "1 data bytes, 2 crc int64",
    "AddArtifactsRequest.BeginChunkedArtifact": (
        "1 name string, 2 total_bytes int64, 3 num_chunks int64, 4 initial_chunk AddArtifactsRequest.ArtifactChunk"
    ),
    "AddArtifactsRequest": (
        "1 session_id string, 2 user_context UserContext, 4 begin_chunk AddArtifactsRequest.BeginChunkedArtifact, "
        "5 chunk AddArtifactsRequest.ArtifactChunk, 6 client_type string"
    ),
    "AddArtifactsResponse.ArtifactSummary": "1 name string, 2 is_crc_successful bool",
    "AddArtifactsResponse": "1 artifacts AddArtifactsResponse.ArtifactSummary*",
    # Errors, as gRPC carries them
    "google.protobuf.Any": "1 type_url string, 2 value bytes",
    "google.rpc.Status": "1 code int32, 2 message string, 3 details google.protobuf.Any*",
    "google.rpc.ErrorInfo": "1 reason string, 2 domain string",
}
"""Fields of each message: number, name, type; a star marks a repeated one."""

METHODS: Mapping[str, tuple[str, str]] = {
    "ExecutePlan": ("ExecutePlanRequest", "ExecutePlanResponse"),
    "ReattachExecute": ("ReattachExecuteRequest", "ExecutePlanResponse"),
    "ReleaseExecute": ("ReleaseExecuteRequest", "ReleaseExecuteResponse"),
    "Interrupt": ("InterruptRequest", "InterruptResponse"),
    "Config": ("ConfigRequest", "ConfigResponse"),
    "AddArtifacts": ("AddArtifactsRequest", "AddArtifactsResponse"),
}
"""Calls of the service, with their request and response."""

_FIELD = re.compile(r"(?P<number>\d+) (?P<name>\w+) (?P<type>[\w.]+)(?P<several>\*?)")


def message(name: str) -> Any:
    """Return the class of a message.

    :raises KeyError: it is not among :data:`MESSAGES`
    """
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # Version 2 of the language distinguishes a missing field from an empty one.
    file = descriptor_pb2.FileDescriptorProto(name="lakecommit_connect.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        _describe(file.message_type.add(name=_flat(name)), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{_flat(name)}"))
        for name in MESSAGES
    }


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _describe(described: Any, fields: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    for found in _FIELD.finditer(fields):
        field = described.field.add(name=found["name"], number=int(found["number"]))
        field.label = FieldDescriptorProto.LABEL_REPEATED if found["several"] else FieldDescriptorProto.LABEL_OPTIONAL
        if found["type"] in MESSAGES:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{_flat(found['type'])}"
        elif found["type"] == "enum":
            field.type = FieldDescriptorProto.TYPE_INT32
        else:
            field.type = getattr(FieldDescriptorProto, f"TYPE_{found['type'].upper()}")
