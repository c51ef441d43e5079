# SPDX-License-Identifier: Apache-2.0
"""The control topic: the bytes of its records, their signatures, reading and writing them."""
