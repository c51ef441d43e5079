# SPDX-License-Identifier: Apache-2.0
"""How large windows and slices should be, by what finished ones took. Standard library only; no I/O, no clock."""
