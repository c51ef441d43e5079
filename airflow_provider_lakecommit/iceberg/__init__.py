# SPDX-License-Identifier: Apache-2.0
"""Catalog, table specs and types, data files and their storage."""
