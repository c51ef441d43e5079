# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages to Arrow."""
