# SPDX-License-Identifier: Apache-2.0
"""Pure decisions about what is read next and how windows are cut. Standard library only; no I/O, no clock."""
