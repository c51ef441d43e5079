# SPDX-License-Identifier: Apache-2.0
"""Decoders around decoders: routes, unwrapped envelopes, SQL."""
