# SPDX-License-Identifier: Apache-2.0
"""Table maintenance: remove files that no slice needs any more, expire old snapshots, compact.

Contract: nothing here adds or removes a row, and landing does not need it. What is removed can never be needed again.
"""
