# SPDX-License-Identifier: Apache-2.0
"""Random sequences of operations on one landing, each step checked by a model and an independent reader."""
