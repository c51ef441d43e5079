# SPDX-License-Identifier: Apache-2.0
"""Protobuf: what a schema says, how its messages become columns, and the decoder."""
