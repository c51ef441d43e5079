# SPDX-License-Identifier: Apache-2.0
"""Schema registries: which schema a record names, and what that schema is."""
