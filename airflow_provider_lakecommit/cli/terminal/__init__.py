# SPDX-License-Identifier: Apache-2.0
"""The interface between a command and its user or script: output, confirmation, signals."""
