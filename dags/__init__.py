# SPDX-License-Identifier: Apache-2.0
"""Examples, to be copied and changed."""
