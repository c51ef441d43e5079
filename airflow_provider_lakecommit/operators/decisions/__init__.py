# SPDX-License-Identifier: Apache-2.0
"""The operations on a landing: one class for each, with its arguments, preview and action."""
